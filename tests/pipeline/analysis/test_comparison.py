import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.analysis.bootstrap import Resamples, resample
from pipeline.analysis.comparison import (
    _resample_level,
    adjust_p_values,
    compare_methods,
    compute_two_sided_p_value,
    read_curve,
)
from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import CIDER, Point, Run, add_frozen_speakers, read_results
from pipeline.analysis.selection import ReportSettings
from pipeline.analysis.tradeoff import build_curves
from pipeline.report.comparison_tables import build_rho_table

R10 = make_recall_keys("own")
NO_RESAMPLES = Resamples(0)


def read_world_results(world, *frozen):
    return add_frozen_speakers(read_results(world.sweep, world.evaluations, first=("mle",)), frozen)


def find_reading(slice_, label):
    (found,) = [reading for reading in slice_.readings if reading.curve.label == label]
    return found


def make_two_seeds(make_cell):
    """Return two settings (CIDEr 1.0 and .8, R@10 70 and 90) with two seeds; seed 2 has .04 and 4 points more."""
    return [
        make_cell("psst", cider - 0.01 + d / 100, recall - 1 + d, **{"lambda": lam, "seed": seed})
        for lam, cider, recall in ((0.1, 1.0, 70.0), (0.2, 0.8, 90.0)) for seed, d in ((1, 0), (2, 4))
    ]  # fmt: skip


def test_a_reading_between_settings_and_its_spread_over_seeds(world, make_cell):
    world.write(make_two_seeds(make_cell), [])
    (curve,) = build_curves(read_results(world.sweep, []))
    reading = read_curve(curve, CIDER, R10, 0.87, [R10, make_recall_keys("judge")], NO_RESAMPLES)
    # the mean curve: .82 → 92 and 1.02 → 72, so .87 → 87; the judge has 20 points less
    assert reading.estimates[R10].value == pytest.approx(87.0)
    assert reading.estimates[make_recall_keys("judge")].value == pytest.approx(67.0)
    # seed 1: .80 → 90, 1.00 → 70, so 83; seed 2: .84 → 94, 1.04 → 74, so 91
    assert reading.estimates[R10].spread == pytest.approx(math.sqrt(32.0))
    assert reading.estimates[R10].seeds == 2
    assert reading.estimates[R10].interval is None
    assert reading.nearest.settings["lambda"] == 0.2
    assert reading.span == (pytest.approx(0.82), pytest.approx(1.02))


def test_a_seed_whose_curve_does_not_contain_the_level_does_not_count_in_the_spread(world, make_cell):
    world.write(make_two_seeds(make_cell), [])
    (curve,) = build_curves(read_results(world.sweep, []))
    estimate = read_curve(curve, CIDER, R10, 0.83, [R10], NO_RESAMPLES).estimates[R10]  # seed 2 begins at .84
    assert (estimate.value, estimate.spread, estimate.seeds) == (pytest.approx(91.0), None, 1)


def test_beyond_the_curve_there_is_no_number_and_below_it_a_lower_bound(world, make_cell):
    world.write(make_two_seeds(make_cell), [])
    (curve,) = build_curves(read_results(world.sweep, []))
    beyond = read_curve(curve, CIDER, R10, 1.03, [R10], NO_RESAMPLES)
    assert beyond.nearest is None
    assert beyond.estimates == {}
    assert beyond.span == (pytest.approx(0.82), pytest.approx(1.02))
    below = read_curve(curve, CIDER, R10, 0.79, [R10], NO_RESAMPLES)  # the lowest setting has 92 at .82
    assert (below.nearest is not None, below.is_lower_bound, below.estimates[R10].value) == (
        True,
        True,
        pytest.approx(92.0),
    )
    assert below.estimates[R10].spread == pytest.approx(math.sqrt(8.0))  # the ends of both seeds are 90 and 94
    assert not read_curve(curve, CIDER, R10, 0.82, [R10], NO_RESAMPLES).is_lower_bound


def test_language_at_a_fixed_recall(world, make_cell):
    world.write(make_two_seeds(make_cell), [])
    (curve,) = build_curves(read_results(world.sweep, []))
    reading = read_curve(curve, R10, CIDER, 77.0, [CIDER, ("language", "METEOR"), ("language", "SPICE")], NO_RESAMPLES)
    assert reading.estimates[CIDER].value == pytest.approx(0.97)
    assert reading.estimates["language", "METEOR"].value == pytest.approx(0.22)
    assert ("language", "SPICE") not in reading.estimates


def test_a_metric_is_left_out_where_a_setting_with_a_weight_lacks_it(world, make_cell):
    cells = make_two_seeds(make_cell)
    del cells[0]["test"]["judges"]["judge"]
    world.write(cells, [])
    (curve,) = build_curves(read_results(world.sweep, []))
    judge = make_recall_keys("judge")
    assert judge not in read_curve(curve, CIDER, R10, 0.87, [R10, judge], NO_RESAMPLES).estimates
    assert read_curve(curve, CIDER, R10, 0.82, [R10, judge], NO_RESAMPLES).estimates[judge].value == pytest.approx(72.0)


def test_intervals_come_from_the_curve_of_every_resample(full_world):
    results = read_world_results(full_world)
    curve = next(curve for curve in build_curves(results) if curve.label == "st_multinomial")
    samples = resample(results, 40, seed=5)
    reading = read_curve(curve, CIDER, make_recall_keys("own"), 0.9, [R10], samples)
    n = 11
    means = []  # CIDEr and recall of each setting in resample n, averaged over its seeds
    for point in curve.points:
        means.append([np.mean([samples.get_values(run, *keys)[n] for run in point.runs]) for keys in (CIDER, R10)])
    x, y = np.array(sorted(means)).T
    assert (np.diff(y) <= 0).all()  # no values to pool, so that the curve is the linear interpolation
    assert reading.resampled[R10][n] == pytest.approx(np.interp(0.9, x, y))
    low, high = np.percentile(reading.resampled[R10], (2.5, 97.5))
    assert reading.estimates[R10].interval == (pytest.approx(low), pytest.approx(high))
    assert low < reading.estimates[R10].value < high


def test_a_resample_whose_curve_ends_below_the_level_takes_its_end_and_is_counted(full_world):
    results = read_world_results(full_world)
    (curve,) = [curve for curve in build_curves(results) if curve.label == "mle"]
    samples = resample(results, 200)
    cider = curve.points[0].mean("test", *CIDER)
    reading = read_curve(curve, CIDER, R10, cider, [R10], samples)
    assert reading.nearest is not None
    assert 0.3 < reading.share_below_level < 0.7  # about half of a single setting's resamples are below it
    run = curve.points[0].runs[0]
    assert reading.resampled[R10] == pytest.approx(samples.get_values(run, *R10))
    levels = samples.get_values(run, *CIDER)
    assert read_curve(curve, CIDER, R10, cider, [R10], samples, levels).share_below_level == 0


def test_the_control_is_read_at_its_own_cider_with_its_own_numbers(full_world):
    comparison = compare_methods(read_world_results(full_world, "mle"), ReportSettings())
    slice_ = comparison.at_cider[0]
    assert slice_.level == pytest.approx(0.96)
    assert comparison.control == "mle"
    for label in ("mle", "frozen_mle"):
        reading = find_reading(slice_, label)
        run = reading.curve.points[0].runs[0]
        assert reading.estimates[R10].value == pytest.approx(run.value("test", *R10))
        assert reading.share_below_level == 0
        assert reading.estimates[R10].interval is not None
    assert find_reading(comparison.at_cider[1], "mle").is_lower_bound


def test_differences_are_paired_and_holm_adjusted(full_world):
    comparison = compare_methods(read_world_results(full_world, "luo"), ReportSettings())
    slice_ = comparison.at_cider[1]
    base = next(reading for reading in slice_.readings if reading.curve is slice_.reference)
    assert base.curve.method == "psst_multinomial"
    assert base.curve.label not in slice_.differences
    luo = find_reading(slice_, "luo")
    difference = slice_.differences["luo"]["own"]
    assert difference.value == pytest.approx(luo.estimates[R10].value - base.estimates[R10].value)
    resampled_differences = luo.resampled[R10] - base.resampled[R10]
    assert difference.interval == tuple(pytest.approx(end) for end in np.percentile(resampled_differences, (2.5, 97.5)))
    assert difference.clear == (difference.interval[1] < 0 or difference.interval[0] > 0)
    unadjusted = [
        math.erfc(abs(each.estimates[keys].value - base.estimates[keys].value)
                  / np.std(each.resampled[keys] - base.resampled[keys], ddof=1) / math.sqrt(2))
        for each in slice_.readings
        for keys, judge in ((make_recall_keys(name), name) for name in comparison.results.judges)
        if judge in slice_.differences.get(each.curve.label, {})
    ]  # fmt: skip
    adjusted = [each.p for by_judge in slice_.differences.values() for each in by_judge.values()]
    assert adjusted == pytest.approx(adjust_p_values(unadjusted))
    assert min(unadjusted) < min(adjusted)


def compare_at_one_cider(full_world, make_full_cell, settings_by_method):
    """Return the comparison at CIDEr .9 and the bounds of its differences by the own listener.

    Settings are pairs (CIDEr, discriminability); a higher discriminability gives a higher recall.
    """
    cells = [
        make_full_cell(method, cider, share, **{"lambda": cider, "seed": 1})
        for method, settings in settings_by_method.items() for cider, share in settings
    ]  # fmt: skip
    full_world.write(cells, [])
    (slice_,) = compare_methods(read_results(full_world.sweep, []), ReportSettings(cider_levels=(0.9,))).at_cider
    return slice_, {name: found["own"].bound for name, found in slice_.differences.items() if "own" in found}


HIGHER, LOWER = (
    ((0.95, 0.9), (1.05, 0.8)),
    ((0.95, 0.3), (1.05, 0.2)),
)  # curves above .9, with a high and with a low recall
THROUGH = ((0.85, 0.65), (0.95, 0.55))  # a curve through .9


def test_the_difference_of_a_bound_and_a_number_is_kept_only_if_it_decides_the_order(full_world, make_full_cell):
    ends = {"psst_multinomial": THROUGH, "more": HIGHER, "less": LOWER, "through": ((0.85, 0.6), (0.95, 0.5))}
    slice_, bounds = compare_at_one_cider(full_world, make_full_cell, ends)
    assert [each.curve.label for each in slice_.readings if each.is_lower_bound] == ["more", "less"]
    # a lower bound above the reference's recall decides the order; one below it does not
    assert bounds == {"more": "≥", "through": ""}


def test_two_bounds_are_not_subtracted_and_a_bound_is_subtracted_only_from_smaller_numbers(full_world, make_full_cell):
    ends = {"psst_multinomial": HIGHER, "more": ((0.95, 0.95), (1.05, 0.9)), "less": LOWER, "through": THROUGH}
    assert compare_at_one_cider(full_world, make_full_cell, ends)[1] == {"through": "≤"}
    assert compare_at_one_cider(full_world, make_full_cell, {"psst_multinomial": LOWER, "through": THROUGH})[1] == {}


def test_differences_that_are_not_printed_do_not_count_in_holms_correction(full_world, make_full_cell):
    ends = {"psst_multinomial": HIGHER, "through": THROUGH}
    two_methods, _ = compare_at_one_cider(full_world, make_full_cell, ends)
    four_methods, _ = compare_at_one_cider(full_world, make_full_cell, ends | {"less": LOWER, "more": HIGHER})
    assert four_methods.differences == two_methods.differences != {}


def test_the_difference_of_equal_captions_is_zero(full_world, make_full_cell):
    cells = [make_full_cell("psst_multinomial", c, t, **{"lambda": c, "seed": 1}) for c, t in ((0.9, 0.8), (1.0, 0.6))]
    twins = [entry | {"method": "twin", "captions": list(entry["captions"])} for entry in cells]
    full_world.write([*cells, *twins], [make_full_cell("mle", 0.96, 0.5, seed=1)])
    slice_ = compare_methods(read_world_results(full_world), ReportSettings()).at_cider[0]
    assert slice_.differences["twin"]["own"].value == 0
    assert slice_.differences["twin"]["own"].p == 1
    assert not slice_.differences["twin"]["own"].clear


def test_the_reference_is_psst_at_the_rho_chosen_on_validation_else_the_first_other_method(full_world, make_full_cell):
    results = read_world_results(full_world, "mle")
    for point in results.get_points("psst_multinomial"):
        better = point.settings["rho"] == 0.75 and point.settings["lambda"] == 0.005
        for run in point.runs:
            run.numbers["val", *R10] = 90.0 if better else 10.0
    assert compare_methods(results, ReportSettings()).at_cider[0].reference.label == "psst_multinomial ρ 0.75"
    cells = [make_full_cell("luo", c, t, **{"lambda": c, "seed": 1}) for c, t in ((0.9, 0.8), (1.0, 0.6))]
    full_world.write(cells, [make_full_cell("mle", 0.96, 0.5, seed=1)])
    assert compare_methods(read_world_results(full_world, "mle"), ReportSettings()).at_cider[0].reference.label == "luo"


def test_holm_by_hand():
    assert adjust_p_values([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust_p_values([0.5, 0.6]) == [1.0, 1.0]
    assert adjust_p_values([]) == []


def test_recall_along_rho_at_the_highest_cider_that_all_reach(full_world):
    comparison = compare_methods(read_world_results(full_world), ReportSettings())
    (slice_,) = comparison.along_rho
    assert {reading.curve.method for reading in slice_.readings} == {"psst_multinomial"}
    assert [reading.curve.settings["rho"] for reading in slice_.readings] == [0.0, 0.25, 0.5, 0.75, 1.0]
    spans = [reading.span for reading in slice_.readings]
    assert min(high for _, high in spans) - 0.001 < slice_.level <= min(high for _, high in spans)
    own, judge = (
        [reading.estimates[make_recall_keys(name)] for reading in slice_.readings] for name in ("own", "judge")
    )
    assert own[2].value > own[0].value + 5
    assert all(estimate.interval for estimate in judge)


def test_a_rho_whose_curve_lies_above_the_level_has_its_lowest_setting_as_a_lower_bound(world, make_cell):
    ciders_by_rho = {0.0: (0.5, 0.6), 0.5: (0.8, 1.0), 1.0: (0.7, 0.9)}
    cells = [
        make_cell("psst", cider - 0.01, 150 - 100 * cider, **{"lambda": cider, "rho": rho, "seed": 1})
        for rho, ciders in ciders_by_rho.items() for cider in ciders
    ]  # fmt: skip
    world.write(cells, [])
    (slice_,) = compare_methods(read_world_results(world), ReportSettings()).along_rho
    assert slice_.level == pytest.approx(0.6)
    assert [reading.is_lower_bound for reading in slice_.readings] == [False, True, True]
    assert [reading.estimates[R10].value for reading in slice_.readings] == pytest.approx([91.0, 71.0, 81.0])
    table = build_rho_table(compare_methods(read_world_results(world), ReportSettings()), slice_)
    assert [row[0] for row in table.rows] == ["0", "0.5§", "1§"]
    assert "Marked §, 2 of 3 rows: every setting of the method has a higher CIDEr" in " ".join(table.notes)


def test_configured_levels_are_used_and_frozen_speakers_have_curves(full_world):
    settings = replace(ReportSettings(), cider_levels=(0.9,), score_levels=(70.0,), frozen_speakers=("luo",))
    comparison = compare_methods(
        replace(read_world_results(full_world, *settings.frozen_speakers), requested_score="R@5"), settings
    )
    assert [slice_.level for slice_ in comparison.at_cider] == [0.9]
    assert [slice_.level for slice_ in comparison.at_score] == [70.0]
    frozen, luo = (find_reading(comparison.at_cider[0], label) for label in ("frozen_luo", "luo"))
    assert frozen.estimates[R10].value != luo.estimates[R10].value
    assert frozen.estimates[R10].value == pytest.approx(frozen.estimates[make_recall_keys("adapted")].value)
    fixed = find_reading(comparison.at_score[0], "st_multinomial")
    values = [point.mean("test", *make_recall_keys("own", "R@5")) for point in fixed.curve.points]
    assert fixed.span == (min(values), max(values))


def test_captions_without_scores_are_compared_without_intervals(world):
    comparison = compare_methods(read_world_results(world, "mle"), ReportSettings())
    assert comparison.notes[0].startswith("No intervals")
    readings = [reading for slice_ in comparison.at_cider for reading in slice_.readings if reading.nearest]
    assert readings
    assert all(estimate.interval is None for reading in readings for estimate in reading.estimates.values())
    assert all(not slice_.differences for slice_ in comparison.at_cider)
    assert "adapted" not in comparison.results.judges
    assert comparison.control is None


def test_equal_inputs_give_equal_numbers(full_world):
    results = read_world_results(full_world)
    one, two = (compare_methods(results, ReportSettings()) for _ in range(2))
    assert one.at_cider == two.at_cider


def test_a_setting_without_cider_on_the_test_split_is_left_out(world, make_cell):
    cells = make_two_seeds(make_cell)
    incomplete = make_cell("psst", 0.9, 80.0, **{"lambda": 0.15, "seed": 1})
    del incomplete["test"]["language"]
    world.write([*cells, incomplete], [])
    (curve,) = build_curves(read_results(world.sweep, []))
    assert len(curve.points) == 3
    assert read_curve(curve, CIDER, R10, 0.87, [R10], NO_RESAMPLES).estimates[R10].value == pytest.approx(87.0)


def test_p_is_1_for_a_zero_difference_and_else_0_without_deviation():
    same = np.zeros(10)
    assert [compute_two_sided_p_value(value, same) for value in (0.0, 1e-12, 0.5)] == [1.0, 1.0, 0.0]
    spread = np.array([2.0, 4.0]) / math.sqrt(2)  # standard deviation 1; the mean does not count
    values = [compute_two_sided_p_value(value, spread) for value in (1.959964, -1.959964)]
    assert values == pytest.approx([0.05, 0.05], abs=1e-7)


def test_a_level_is_the_same_share_of_the_best_controls_cider_in_every_resample():
    """The control's settings have CIDEr .8 and 1.0; the level .9 is 90 % of the higher value."""
    runs = [
        Run("mle", {"seed": 1, "lambda": cider}, "", {("test", *CIDER): cider}, {}, Path(str(cider)))
        for cider in (0.8, 1.0)
    ]
    resampled = {0.8: np.array([0.5, 0.6]), 1.0: np.array([1.2, 0.9])}
    samples = Resamples(2, {run.captions_key: {CIDER: (resampled[run.settings["lambda"]], 1.0)} for run in runs})
    levels = _resample_level(0.9, [Point((run,)) for run in runs], samples)
    assert levels.tolist() == pytest.approx([1.08, 0.81])


def test_a_curve_whose_only_lower_setting_lacks_the_traded_metric_gives_a_lower_bound(world, make_cell):
    """The curve's settings have CIDEr .9 and 1.0. A third setting has .5, but no recall by the own listener."""
    cells = [
        make_cell("psst", cider - 0.01, recall, **{"lambda": cider, "seed": 1})
        for cider, recall in ((0.5, None), (0.9, 59.0), (1.0, 49.0))
    ]
    world.write(cells, [])
    (curve,) = build_curves(read_results(world.sweep, []))
    reading = read_curve(curve, CIDER, R10, 0.7, [R10], NO_RESAMPLES)
    assert (reading.is_lower_bound, reading.estimates[R10].value) == (True, pytest.approx(60.0))
    assert not read_curve(curve, CIDER, R10, 0.95, [R10], NO_RESAMPLES).is_lower_bound
