import json

import pytest

from pipeline.errors import UserError
from pipeline.reporting.results import read_results


def test_missing_null_and_nan_are_none_and_zero_is_a_number(world, make_cell):
    entry = make_cell("luo", 0.0, 50.0, seed=1)
    entry["test"]["language"] |= {"METEOR": float("nan"), "BLEU-4": None}
    del entry["test"]["judge"]
    world.write([entry], [])
    (run,) = read_results(world.sweep, []).runs
    assert run.value("val", "language", "CIDEr") == 0.0
    assert run.value("test", "language", "METEOR") is None
    assert run.value("test", "language", "BLEU-4") is None
    assert run.value("test", "judge", "text_to_image", "R@10") is None


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
    assert point.mean("val", "own", "text_to_image", "R@10") == 50.0


def test_order_is_first_named_then_as_met_and_along_lambda(world, control, cells):
    world.write(cells[::-1], [control])
    results = read_results(world.sweep, world.evaluations, first=("pretrained", "mle"))
    assert results.methods == ["mle", "luo", "st_multinomial", "psst_multinomial"]
    assert [point.settings["lambda"] for point in results.of("psst_multinomial")] == [0.001, 0.005, 0.02]


def test_a_single_run_with_a_cells_settings_counts_once_and_a_difference_is_noted(world, make_cell):
    twin = make_cell("luo", 0.94, 70.0, **{"lambda": 0.5, "seed": 1})
    world.write([twin], [json.loads(json.dumps(twin))])
    same = read_results(world.sweep, [world.root / "evaluation" / "luo"])
    assert len(same.runs) == 1
    assert same.notes == ()
    twin["test"]["language"]["CIDEr"] = 0.5
    (world.root / "evaluation" / "luo" / "metrics.json").write_text(json.dumps(twin))
    differing = read_results(world.sweep, [world.root / "evaluation" / "luo"])
    assert len(differing.runs) == 1
    assert "luo" in differing.notes[0]


def test_a_missing_or_broken_file_is_named(world):
    (world.sweep / "cells.json").write_text("{")
    with pytest.raises(UserError, match=r"cells\.json: not JSON"):
        read_results(world.sweep, [])
    (world.sweep / "cells.json").unlink()
    with pytest.raises(UserError, match=r"cells\.json: no such file"):
        read_results(world.sweep, [])


def test_equal_settings_twice_and_no_results_at_all_are_refused(world, make_cell):
    world.write([make_cell("luo", 0.9, 70.0, seed=1)] * 2, [])
    with pytest.raises(UserError, match="same settings"):
        read_results(world.sweep, [])
    (world.sweep / "cells.json").write_text("[]")
    with pytest.raises(UserError, match="no cell"):
        read_results(world.sweep, [])
