import json
from pathlib import Path

import pytest

from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import Run, add_frozen_speakers, format_named_setting, read_results
from pipeline.analysis.tradeoff import build_curves
from pipeline.errors import UserError
from pipeline.runtime.checksums import CAPTIONS, serialise_with_checksum, write_checksums
from pipeline.runtime.files import compute_sha256


def test_missing_null_and_nan_are_none_and_zero_is_a_number(world, make_cell):
    entry = make_cell("luo", 0.0, 50.0, seed=1)
    entry["test"]["language"] |= {"METEOR": float("nan"), "BLEU-4": None}
    del entry["test"]["judges"]["judge"]
    world.write([entry], [])
    (run,) = read_results(world.sweep, []).runs
    assert run.value("val", "language", "CIDEr") == 0.0
    assert run.value("test", "language", "METEOR") is None
    assert run.value("test", "language", "BLEU-4") is None
    assert run.value("test", *make_recall_keys("judge")) is None


def test_seeds_make_one_point_with_mean_and_sample_deviation(world, make_cell):
    values = (0.8, 0.9, 1.0)
    world.write([make_cell("luo", c, 50.0, **{"lambda": 0.5, "seed": n}) for n, c in enumerate(values)], [])
    (point,) = read_results(world.sweep, []).points
    assert point.seeds == (0, 1, 2)
    assert point.mean("val", "language", "CIDEr") == pytest.approx(0.9)
    assert point.spread("val", "language", "CIDEr") == pytest.approx(0.1)


def test_a_seed_without_the_number_leaves_no_mean(world, make_cell):
    world.write([make_cell("luo", c, 50.0, **{"lambda": 0.5, "seed": n}) for n, c in enumerate((0.8, None))], [])
    (point,) = read_results(world.sweep, []).points
    assert point.mean("val", "language", "CIDEr") is None
    assert point.mean("val", *make_recall_keys("own")) == 50.0


def test_methods_keep_the_given_order_then_that_of_the_files_and_settings_ascend_in_lambda(world, control, cells):
    world.write(cells[::-1], [control])
    results = read_results(world.sweep, world.evaluations, first=("pretrained", "mle"))
    assert results.methods == ["mle", "luo", "st_multinomial", "psst_multinomial"]
    assert [point.settings["lambda"] for point in results.get_points("psst_multinomial")] == [0.001, 0.005, 0.02]


def test_a_guided_method_has_gamma_in_the_settings_of_all_its_runs(world, guidance_cells, control):
    single = json.loads(json.dumps(next(entry for entry in guidance_cells if entry["settings"].get("gamma") == 1)))
    del single["settings"]["gamma"]  # an evaluation does not record a gamma of 1
    world.write([*guidance_cells, control], [single])
    results = read_results(world.sweep, [world.root / "evaluation" / "guidance"], first=("mle",))
    assert [point.settings["gamma"] for point in results.get_points("guidance")] == [1, 1.5, 2]
    assert {point.settings["gamma"] for point in results.get_points("luo")} == {1, 1.5}
    assert "gamma" not in results.get_points("mle")[0].settings
    assert {method: results.curve_setting(method) for method in results.methods} == {
        "mle": "lambda", "guidance": "gamma", "luo": "lambda"
    }  # fmt: skip
    assert (results.varying_settings("guidance"), results.varying_settings("luo")) == ([], ["gamma"])
    assert len({run.protocol for run in results.runs}) == 1


def test_reranked_captions_are_a_curve_along_the_number_of_samples(world, make_cell, control):
    cells = [make_cell("mle_rerank", 0.9, 60.0, **{"lambda": 0.0, "seed": 1}) for _ in range(3)]
    for entry, samples in zip(cells, (20, 1, 5), strict=True):
        entry["settings"]["rerank"] = {"samples": samples, "temperature": 0.5, "score": "similarity"}
        entry["cell"] = f"rerank=samples-{samples},seed=1"
        entry["signature"] += f"|rerank=samples:{samples},among:split"
    single = json.loads(json.dumps(cells[0]))
    world.write([*cells, control], [single])
    results = read_results(world.sweep, [world.root / "evaluation" / "mle_rerank"])
    assert [point.settings["rerank"] for point in results.get_points("mle_rerank")] == [1, 5, 20]
    assert (results.curve_setting("mle_rerank"), results.curve_setting("mle")) == ("rerank", "lambda")
    assert results.varying_settings("mle_rerank") == []
    assert format_named_setting(results.get_points("mle_rerank")[2], "rerank") == "n 20"
    assert format_named_setting(results.get_points("mle_rerank")[2], "rerank_temperature") == "τ 0.5"
    assert format_named_setting(results.get_points("mle_rerank")[2], "rerank_score") == "score similarity"
    assert len({run.protocol for run in results.runs}) == 1


def test_a_missing_or_broken_file_is_named(world):
    (world.sweep / "cells.json").write_text("{")
    with pytest.raises(UserError, match=r"cells\.json: not JSON"):
        read_results(world.sweep, [])
    (world.sweep / "cells.json").unlink()
    with pytest.raises(UserError, match=r"cells\.json: no such file"):
        read_results(world.sweep, [])


def test_equal_settings_twice_and_no_results_at_all_are_refused(world, make_cell):
    world.write([make_cell("luo", 0.9, 70.0, seed=1)] * 2, [])
    with pytest.raises(UserError, match="found two cells with equal settings"):
        read_results(world.sweep, [])
    (world.sweep / "cells.json").write_text("[]")
    with pytest.raises(UserError, match="expected a cell or an evaluation, found none"):
        read_results(world.sweep, [])


def test_cells_without_a_name_and_files_of_an_older_version_are_refused(world, make_cell):
    cell = make_cell("luo", 0.9, 70.0, seed=1)
    path = world.sweep / "cells.json"
    path.write_text(json.dumps([{key: value for key, value in cell.items() if key != "cell"}]))
    with pytest.raises(UserError, match="cells with their names"):
        read_results(world.sweep, [])
    path.write_text(json.dumps([{**cell, "test": {"own": cell["test"]["judges"]["own"]}}]))
    with pytest.raises(UserError, match="as in files of an older version"):
        read_results(world.sweep, [])


def test_the_adapted_listener_is_listed_where_it_is_a_judge(world, full_world):
    assert list(read_results(world.sweep, []).judges) == ["own", "pretrained", "judge"]
    assert list(read_results(full_world.sweep, []).judges) == ["own", "adapted", "pretrained", "judge"]


def test_a_frozen_speaker_has_its_methods_captions_and_the_adapted_listener(full_world):
    results = read_results(full_world.sweep, full_world.evaluations, first=("mle",))
    frozen = add_frozen_speakers(results, ("luo", "mle", "unknown"))
    assert frozen.methods[:2] == ["mle", "frozen_mle"]
    assert frozen.methods[-2:] == ["luo", "frozen_luo"]
    assert frozen.notes == ()
    assert [point.settings for point in frozen.get_points("frozen_luo")] == [
        point.settings for point in results.get_points("luo")
    ]
    own, adapted = ("judges", "own"), ("judges", "adapted")
    for split in ("val", "test"):
        run, source = frozen.get_points("frozen_luo")[0].runs[1], results.get_points("luo")[0].runs[1]
        for keys in (("text_to_image", "mean_rank"), ("image_to_text", "mean_rank")):
            assert source.value(split, *own, *keys) != source.value(split, *adapted, *keys)
            assert run.value(split, *own, *keys) == source.value(split, *adapted, *keys)
            assert run.value(split, *own, "human", *keys) == source.value(split, *adapted, "human", *keys)
            assert run.value(split, "judges", "judge", *keys) == source.value(split, "judges", "judge", *keys)
        assert run.value(split, *make_recall_keys("own", "R@1", "galleries", "random100")) == source.value(
            split, *make_recall_keys("adapted", "R@1", "galleries", "random100")
        )
        assert run.value(split, "language", "CIDEr") == source.value(split, "language", "CIDEr")
    assert (run.speaker, run.cell, run.captions) == ("luo", source.cell, source.captions)
    assert (run.column("rank", "own"), run.column("rank", "judge")) == ("rank_adapted", "rank_judge")
    assert (run.column("retrieved", "own"), source.column("retrieved", "own")) == ("retrieved_adapted", "retrieved_own")
    assert (source.column("rank", "own"), source.speaker) == ("rank_own", "luo")
    assert results.get_points("luo")[0].runs[1].value("test", *make_recall_keys("own")) is not None


def test_without_an_adapted_listener_there_is_no_frozen_speaker_and_a_note(world):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    frozen = add_frozen_speakers(results, ("mle", "luo"))
    assert frozen.methods == results.methods
    assert frozen.notes == (
        "frozen_mle, frozen_luo: settings without the recall of the adapted or own listener are left out; "
        "evaluate them again.",
    )


@pytest.mark.parametrize(("lam", "cells"), [(0.5, ["a cell"]), (0.9, ["a cell", None])])
def test_a_cell_represents_the_own_run_with_its_settings_and_another_own_run_is_one_more_point(
    world, make_cell, lam, cells
):
    swept = make_cell("luo", 0.9, 70.0, **{"lambda": 0.5, "seed": 1}) | {"cell": "a cell"}
    world.write([swept], [make_cell("luo", 0.8, 60.0, **{"lambda": lam, "seed": 1})])
    points = read_results(world.sweep, world.evaluations).get_points("luo")
    assert [run.cell for point in points for run in point.runs] == cells


def test_swapped_or_damaged_captions_are_named(world, make_cell):
    entries = [make_cell(method, 0.9, 70.0, **{"lambda": 0.5, "seed": 1}) for method in ("luo", "mle")]
    world.write(entries[:1], entries)
    folders = [world.root / "evaluation" / method for method in ("luo", "mle")]
    for folder, entry in zip(folders, entries, strict=True):
        digests = {CAPTIONS: compute_sha256(folder / "captions.parquet")}
        (folder / "metrics.json").write_text(serialise_with_checksum(entry | digests))
    write_checksums(world.sweep)
    read_results(world.sweep, folders)
    for folder in (world.sweep, folders[0]):
        path = folder / "captions.parquet"
        whole = path.read_bytes()
        for content in ((folders[1] / "captions.parquet").read_bytes(), whole[:-9] + b"x" + whole[-8:]):
            path.write_bytes(content)
            with pytest.raises(UserError, match=rf"{folder.name}/captions\.parquet: (is missing|was not written)"):
                read_results(world.sweep, folders)
        path.write_bytes(whole)


@pytest.mark.parametrize("file", ["evaluation/luo/metrics.json", "sweep/cells.json", "sweep/history.jsonl"])
def test_files_with_changed_numbers_are_named(world, make_cell, file):
    world.write([make_cell("luo", 0.8, 70.0, seed=2)], [make_cell("luo", 0.9, 70.0, seed=1)])
    (world.sweep / "history.jsonl").write_text('{"epoch": 1, "loss": 0.5}\n')
    write_checksums(world.sweep)
    read_results(world.sweep, world.evaluations)
    path = world.root / file
    whole = path.read_bytes()
    digit = whole.index(b"0.") + 2
    for content in (whole[:digit] + b"1" + whole[digit + 1 :], whole[:digit], b""):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"{file}: .*bytes have changed; .* again"):
            read_results(world.sweep, world.evaluations)


def test_the_protocol_omits_the_options_of_a_method():
    signature = "data=toy|guidance=2|rerank=samples:5,among:split|pragmatic=alpha:1,distractors:7|words=<=16"
    assert Run("a", {}, signature, {}, {}, Path()).protocol == "data=toy|words=<=16"


def test_a_curve_runs_along_the_first_setting_that_varies(world, make_cell):
    """Both methods have λ 0 and α .5, and one of them varies the number of reranked samples."""
    cells = [
        make_cell(method, 0.9, 60.0, **{"lambda": 0.0, "alpha": 0.5, "rerank": samples, "seed": 1})
        for method, counts in (("several", (1, 5)), ("one", (5,))) for samples in counts
    ]  # fmt: skip
    world.write(cells, [])
    results = read_results(world.sweep, [])
    assert (results.curve_setting("several"), results.varying_settings("several")) == ("rerank", [])
    assert (results.curve_setting("one"), results.curve_setting("unknown")) == ("alpha", "lambda")
    assert [len(curve.points) for curve in build_curves(results)] == [2, 1]


def test_whole_numbers_and_equal_floats_are_one_value_of_a_setting(world, make_cell):
    """A grid in params.yaml may give ρ as 1, and an evaluation of the method's own settings gives 1.0."""
    swept = [make_cell("psst", 0.9, 60.0, **{"lambda": 0.1, "rho": 1, "seed": 1})]
    world.write(swept, [make_cell("psst", 0.8, 70.0, **{"lambda": 0.2, "rho": 1.0, "seed": 1})])
    results = read_results(world.sweep, [world.root / "evaluation" / "psst"])
    assert results.varying_settings("psst") == []
    assert [(curve.label, len(curve.points)) for curve in build_curves(results)] == [("psst", 2)]


@pytest.mark.parametrize("name", ["val", "test", "settings", "not_computed", "judges"])
def test_entries_of_another_form_are_refused(world, make_cell, name):
    entry = make_cell("luo", 0.9, 70.0, seed=1)
    if name == "judges":
        entry["test"][name] = 5
    else:
        entry[name] = ["judges"]
    world.write([], [])
    (world.sweep / "cells.json").write_text(json.dumps([entry]))
    with pytest.raises(UserError, match=rf"cells\.json: expected .*\b{name}\b.* again"):
        read_results(world.sweep, [])


def test_json_that_is_nested_too_deeply_is_refused(world):
    (world.sweep / "cells.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"cells\.json: not JSON"):
        read_results(world.sweep, [])
