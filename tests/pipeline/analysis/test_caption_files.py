import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.caption_files import CONTROL_OVERLAP, add_control_overlap, read_captions, read_texts
from pipeline.analysis.results import Run, read_results
from pipeline.errors import UserError


def test_captions_are_found_by_method_and_cell(world):
    found = read_captions_of_image_5(read_results(world.sweep, []).runs)
    assert found
    for (method, lam, seed), caption in found.items():
        assert caption.startswith(f"{method} says lambda {lam} ")
        assert f"seed {seed} of" in caption


def read_captions_of_image_5(runs):
    keys = [(run.method, run.settings["lambda"], run.settings["seed"]) for run in runs]
    found = {key: rows[5]["caption"] for key, rows in zip(keys, read_captions(runs, [5], ["caption"]), strict=True)}
    assert len(found) == len(runs)
    return found


def test_texts_are_in_the_requested_order(world):
    runs = read_results(world.sweep, world.evaluations).runs
    for run, by_image in zip(runs, read_captions(runs, [9, 5, 7], ["caption"]), strict=True):
        assert read_texts(run, [9, 5, 7]) == [by_image[image]["caption"] for image in (9, 5, 7)]
    with pytest.raises(UserError, match=r"expected a caption of image 99 by .*, found none; delete the file"):
        read_texts(runs[0], [5, 99])


def test_the_control_overlap_is_the_share_of_captions_equal_to_the_controls_with_the_same_seed(world, make_cell):
    """Luo's seed 3 has no control, and the method `other` has captions of three of the eight test images."""
    luo = [make_cell("luo", 0.9, 70.0, **{"lambda": 0.5, "seed": seed}) for seed in (1, 2, 3)]
    controls = [make_cell("mle", 0.9, 60.0, seed=seed) for seed in (1, 2)]
    other = make_cell("other", 0.9, 70.0, seed=1)

    texts = ("abcdefgh", "h" * 8, "abcxxxxx", "h" * 8, "abcdefgh", "abc")
    for entry, captions in zip((*controls, *luo, other), texts, strict=True):
        entry["captions"] = [{"split": "val", "image": 99, "caption": "a"}] + [
            {"split": "test", "image": image, "caption": caption} for image, caption in enumerate(captions)
        ]
    world.write([*controls, *luo, other], [])
    results = add_control_overlap(read_results(world.sweep, []), "mle")
    found = {(run.method, run.settings["seed"]): run.value("test", *CONTROL_OVERLAP) for run in results.runs}
    assert found == {
        ("mle", 1): None, ("mle", 2): None, ("luo", 1): 3 / 8, ("luo", 2): 1.0, ("luo", 3): None, ("other", 1): None
    }  # fmt: skip
    assert add_control_overlap(results, "absent") == results


def test_a_control_with_several_settings_is_not_compared(world):
    results = read_results(world.sweep, world.evaluations)
    assert len(results.get_points("st_multinomial")) > 1
    assert add_control_overlap(results, "st_multinomial") == results


@pytest.mark.parametrize("name", ["image", "caption"])
def test_a_file_without_a_needed_column_is_named(tmp_path, name):
    columns = {"split": ["test"], "image": [5], "caption": ["a dog"], "CIDEr": [1.0]}
    run = Run("luo", {}, "one", {}, {}, tmp_path / "captions.parquet")
    pq.write_table(pa.table(columns), run.captions)
    assert read_captions([run], None, ["caption", "other"]) == [{5: {"image": 5, "caption": "a dog"}}]
    pq.write_table(pa.table({key: values for key, values in columns.items() if key != name}), run.captions)
    with pytest.raises(UserError, match=re.escape(f"{run.captions}: expected a column {name}, found none")):
        read_captions([run], None, ["caption", "other"])
