"""Baselines as separate points, and comparisons of methods with the template."""

import copy
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.bootstrap import draw_resamples, resample
from pipeline.analysis.judge_titles import HARD_RECALL, make_recall_keys
from pipeline.analysis.measured_baselines import find_methods_not_above_template, list_measured_baselines
from pipeline.analysis.results import add_frozen_speakers, read_results

JUDGES = ("own", "adapted", "pretrained", "judge")


@pytest.fixture
def measured_world(full_world, make_full_cell):
    """Return a world with 32 test images and two seeds.

    Template and mle retrieve the first 16 images by every judge. Luo retrieves the first 30 images by its own listener
    and the last 16 by the pretrained listener. It retrieves the first 17 by the adapted listener, and the first 22 by
    the judge.
    """
    found = {"mle": dict.fromkeys(JUDGES, range(16))}
    found["luo"] = {"own": range(30), "pretrained": range(16, 32), "adapted": range(17), "judge": range(22)}
    cells = []
    for method in found:
        for seed in (1, 2):
            entry = make_full_cell(method, 0.96, 0.5, seed=seed)
            for row in entry["captions"]:
                n = row["image"] - 8  # the test split begins at image 8
                for judge in JUDGES:
                    row[f"neighbourhood_{judge}"] = 1 if n in found[method][judge] else 2
                    if method == "mle":
                        row[f"template_neighbourhood_{judge}"] = 1 if n < 16 else 3
            for split in ("val", "test"):
                for judge in JUDGES:
                    gallery = {"R@1": 100 * len(found[method][judge]) / 32, "random": 12.5, "alone": 0.0}
                    entry[split]["judges"][judge]["galleries"]["neighbourhood"] = gallery
                if method == "mle":
                    template = copy.deepcopy({key: entry[split][key] for key in ("images", "language", "judges")})
                    template["language"]["CIDEr"] = 0.5 + seed / 10
                    template["judges"]["own"]["text_to_image"]["R@10"] = 71.5
                    entry[split]["baselines"] = {"random": {"images": 32}, "template": template}
                    entry[split]["human_faithfulness"] = {"precision": 1.0}
            cells.append(entry)
    full_world.write(cells, [])
    return full_world


def read_with_frozen_speakers(world):
    return add_frozen_speakers(read_results(world.sweep, []), ("mle", "luo"))


def test_baselines_have_their_own_numbers_at_the_paths_of_methods(measured_world):
    found = {baseline.name: baseline for baseline in list_measured_baselines(read_with_frozen_speakers(measured_world))}
    assert list(found) == ["human", "template", "random"]
    template = found["template"].point
    assert [run.settings for run in template.runs] == [{"seed": 1}, {"seed": 2}]
    assert template.mean("test", "language", "CIDEr") == pytest.approx(0.65)
    assert template.mean("test", "judges", "own", "text_to_image", "R@10") == 71.5
    assert template.mean("test", *make_recall_keys("own", HARD_RECALL)) == 50
    assert found["template"].evaluated_with.method == "mle"
    human, mle = found["human"].point, found["human"].evaluated_with
    recall = ("text_to_image", "R@5")
    assert human.mean("test", "judges", "judge", *recall) == 18.75  # the ranks of six of the 32 images are at most 5
    assert mle.mean("test", "judges", "judge", *recall) != 18.75
    assert human.mean("test", "faithfulness", "precision") == 1
    assert human.mean("test", "language", "CIDEr") is None
    assert found["random"].point.mean("test", "images") == 32


def test_a_method_is_better_where_the_interval_of_the_paired_difference_is_above_0(measured_world):
    results = read_with_frozen_speakers(measured_world)
    (template,) = [b for b in list_measured_baselines(results) if b.name == "template"]
    points = [results.get_points(method)[0] for method in ("mle", "luo", "frozen_luo")]
    assert find_methods_not_above_template(results, points, template, resample(results)) == {
        "own": ["mle", "frozen_luo"],  # 30 against 16 is clear; frozen_luo has the adapted listener
        "adapted": ["mle", "luo", "frozen_luo"],  # 17 against 16 is not clear
        "pretrained": ["mle", "luo", "frozen_luo"],  # luo retrieves 16 other images
        "judge": ["mle"],  # 22 against 16 is clear, although the intervals overlap
    }


def test_resampled_ranks_in_the_hard_gallery_count_only_images_with_neighbours(measured_world):
    cells = json.loads((measured_world.sweep / "cells.json").read_text())
    path = measured_world.sweep / "captions.parquet"
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        if row["method"] == "luo" and row["image"] >= 36:  # the last four of the images 8 … 39 have no neighbours
            row["neighbourhood_own"] = 0
    pq.write_table(pa.Table.from_pylist(rows), path)
    for entry in cells:
        if entry["method"] == "luo":
            entry["test"]["judges"]["own"]["galleries"]["neighbourhood"]["R@1"] = 100.0  # the first 28 are retrieved
    (measured_world.sweep / "cells.json").write_text(json.dumps(cells))
    results = read_with_frozen_speakers(measured_world)
    samples, keys = resample(results, resamples=20), make_recall_keys("own", HARD_RECALL)
    assert samples.mean(results.get_points("luo"), *keys) == pytest.approx(np.full((20, 1), 100.0))
    (template,) = [b.point for b in list_measured_baselines(results) if b.name == "template"]
    expected = 100 * draw_resamples(32, 20)[:, :16].sum(1) / 32
    assert samples.mean([template], *keys)[:, 0] == pytest.approx(expected)
    assert samples.mean([template], "language", "CIDEr") is None  # only the method's captions have scores


def test_human_captions_are_listed_beside_the_first_method_if_there_are_no_other_baselines(full_world):
    results = read_results(full_world.sweep, full_world.evaluations, first=("mle",))
    (human,) = list_measured_baselines(results)
    assert (human.name, human.evaluated_with.method) == ("human", "mle")
    recall = ("text_to_image", "R@10")
    expected = human.evaluated_with.mean("test", "judges", "pretrained", "human", *recall)
    assert expected is not None
    assert human.point.mean("test", "judges", "pretrained", *recall) == expected


def test_no_baseline_is_listed_without_recalls_of_human_captions(world, make_cell):
    control = make_cell("mle", 0.96, 69.0, seed=1)
    for split in ("val", "test"):
        for judge in control[split]["judges"].values():
            judge.pop("human", None)
    world.write([], [control])
    assert list_measured_baselines(read_results(world.sweep, world.evaluations)) == []
