from types import SimpleNamespace

import pytest

from pipeline.analysis.levels import (
    _collect_spans,
    choose_cider_levels,
    choose_score_levels,
    find_highest_shared,
    intersect_spans,
)
from pipeline.analysis.results import CIDER, read_results
from pipeline.analysis.selection import ReportSettings
from pipeline.analysis.tradeoff import build_curves


def find_levels(world, make_cell, spans, control=None, **settings):
    """Return CIDEr levels for curves with the ends `spans` on the test split, and the reason."""
    cells = [
        make_cell(f"m{n}", cider - 0.01, 150.0 - 100 * cider, **{"lambda": cider, "seed": 1})
        for n, ends in enumerate(spans) for cider in ends
    ]  # fmt: skip
    if control is not None:
        cells.append(make_cell("mle", control - 0.01, 60.0, seed=1))
    world.write(cells, [])
    results = read_results(world.sweep, [])
    return choose_cider_levels(results, build_curves(results), ReportSettings(**settings))


def test_the_range_that_most_spans_share():
    assert intersect_spans([(0.0, 2.0), (1.0, 3.0), (1.5, 4.0)], 2) == (1.0, 3.0)  # two of the three spans are needed
    assert intersect_spans([(0.0, 2.0), (1.0, 3.0)], 2) == (1.0, 2.0)  # both spans are needed
    assert intersect_spans([(0.0, 1.0), (2.0, 3.0)], 2) is None
    assert intersect_spans([(0.0, 1.0), (2.0, 5.0), (0.2, 0.6), (2.5, 3.0), (0.0, 5.0)], 3) == (2.5, 3.0)
    assert intersect_spans([], 1) is None


def test_levels_are_the_controls_cider_and_its_share_where_most_curves_reach_them(world, make_cell):
    found, reason = find_levels(world, make_cell, [(0.8, 1.1), (0.7, 1.0), (0.5, 0.6)], control=0.9)
    assert list(found) == pytest.approx([0.9, 0.855])
    assert "mle has 0.900 on the test split; compared at 0.900 and 0.855 (95% of that)" in reason
    assert reason.endswith("which more than half of the curves, but not all, reach.")


def test_the_controls_cider_is_not_used_where_no_curve_reaches_it(world, make_cell):
    found, reason = find_levels(world, make_cell, [(0.6, 0.88), (0.7, 0.88)], control=0.9)
    assert list(found) == pytest.approx([0.855])
    assert reason.endswith("compared at 0.855 (95% of that), which all curves reach.")


def test_the_share_of_the_control_is_not_rounded(world, make_cell):
    _, reason = find_levels(world, make_cell, [(0.6, 0.88), (0.7, 0.88)], control=0.9, min_cider_share=0.955)
    assert "compared at 0.859 (95.5% of that)" in reason


@pytest.mark.parametrize("control_cider", [None, 0.2])
def test_levels_are_otherwise_quarters_of_the_shared_range(world, make_cell, control_cider):
    found, reason = find_levels(world, make_cell, [(0.6, 1.0), (0.6, 1.0), (1.1, 1.2)], control=control_cider)
    assert list(found) == pytest.approx([0.9, 0.7])
    assert "more than half of the curves, but not all, share (0.600 to 1.000)" in reason


@pytest.mark.parametrize("control_cider", [None, 0.88, 1.1])
def test_a_range_that_all_curves_share_goes_before_one_that_most_share(world, make_cell, control_cider):
    # All three curves share .9 to 1.0. Two of them reach .88 and .836, and two reach 1.1 and 1.045.
    found, reason = find_levels(world, make_cell, [(0.6, 1.2), (0.6, 1.0), (0.9, 1.2)], control=control_cider)
    assert list(found) == pytest.approx([0.975, 0.925])
    assert "all curves share (0.900 to 1.000)" in reason


def test_levels_are_the_controls_where_all_curves_reach_them(world, make_cell):
    found, reason = find_levels(world, make_cell, [(0.6, 1.2), (0.6, 1.0), (0.9, 1.2)], control=0.98)
    assert list(found) == pytest.approx([0.98, 0.931])
    assert reason.endswith("which all curves reach.")


def test_levels_without_a_shared_range_and_configured_levels(world, make_cell):
    found, reason = find_levels(world, make_cell, [(0.6, 0.7), (0.8, 0.9)], control=0.3)
    assert found == (0.7,)  # at 0.7 the second curve gives a lower bound
    assert "the lowest of the curves' highest values; no range of values is common to more than half" in reason
    found, reason = find_levels(world, make_cell, [(0.6, 0.7), (0.8, 0.9)], control=0.65, cider_levels=(1.2, 1.13))
    assert found == (1.2, 1.13)
    assert "report.cider_levels" in reason


def test_a_degenerate_curve_does_not_set_the_level(world, make_cell):
    found, reason = find_levels(world, make_cell, [(0.6, 0.7), (0.8, 0.9), (0.002, 0.01)], control=0.85)
    assert found == (0.7,)
    assert reason.endswith("more than half of the curves. Not counted, with less than half of mle's CIDEr: m2.")
    found, reason = find_levels(world, make_cell, [(0.8, 0.9), (0.8, 0.9), (0.0, 0.42)], control=0.85)
    assert list(found) == pytest.approx([0.85, 0.8075])
    assert "which all curves reach. Not counted" in reason
    found, reason = find_levels(world, make_cell, [(0.6, 0.7), (0.8, 0.9), (0.002, 0.43)], control=0.85)
    assert found == (0.43,), "a curve with half of the control's CIDEr counts"
    assert "Not counted" not in reason


def write_seeded_curves(world, make_cell, spans):
    """Return results and curves of methods; `spans` gives the ends of each seed's curve by method."""
    cells = [
        make_cell(method, cider - 0.01, 150.0 - 100 * cider, **{"lambda": lam, "seed": seed})
        for method, ends in spans.items() for seed, pair in enumerate(ends)
        for lam, cider in zip((1, 2), pair, strict=True)
    ]  # fmt: skip
    world.write(cells, [])
    results = read_results(world.sweep, [])
    return results, build_curves(results)


def test_all_curves_reach_a_level_in_every_seed(world, make_cell):
    ends = {"a": [(0.6, 1.0), (0.7, 0.8)], "b": [(0.5, 1.0), (0.5, 1.0)]}  # the mean curve of a runs from .65 to .9
    results, curves = write_seeded_curves(world, make_cell, ends)
    found, reason = choose_cider_levels(results, curves, ReportSettings())
    assert list(found) == pytest.approx([0.775, 0.725])
    assert "all curves share (0.700 to 0.800)" in reason
    ends["b"] = [(0.5, 1.0), (0.5, 0.74)]  # so the shared range ends at .74
    found, _ = choose_cider_levels(*write_seeded_curves(world, make_cell, ends), ReportSettings())
    assert list(found) == pytest.approx([0.73, 0.71])


def test_the_reference_curve_reaches_every_level(world, make_cell):
    ends = {"a": [(0.8, 1.0)], "b": [(0.8, 1.0)], "psst": [(0.5, 0.7)]}
    results, curves = write_seeded_curves(world, make_cell, ends)
    found, _ = choose_cider_levels(results, curves, ReportSettings())
    assert list(found) == pytest.approx([0.95, 0.85])  # psst reaches neither
    found, reason = choose_cider_levels(results, curves, ReportSettings(), curves[2])
    assert list(found) == pytest.approx([0.7])
    assert "the lowest of the curves' highest values" in reason


def test_recalls_are_whole_percents_inside_the_shared_range(world, make_cell):
    # R@10 from 51 to 90.5 on the test split, so that the quarters are 80.625 and 60.875
    find_levels(world, make_cell, [(0.605, 1.0), (0.605, 1.0)])
    results = read_results(world.sweep, [])
    found, reason = choose_score_levels(results, build_curves(results), ReportSettings())
    assert list(found) == [81.0, 61.0]
    assert "R@10" in reason
    assert choose_score_levels(results, build_curves(results), ReportSettings(score_levels=(80.0,)))[0] == (80.0,)


def test_the_highest_value_that_all_curves_reach():
    assert find_highest_shared([(0.5, 0.98765), (0.6, 1.2)]) == 0.987
    assert find_highest_shared([(0.5, 0.6), (0.7, 0.8)]) == 0.6
    assert find_highest_shared([], 1) is None


def test_a_curve_that_ends_at_the_level_up_to_rounding_reaches_it(world, make_cell):
    end = 0.9 * (1 - 5e-10)
    found, _ = find_levels(world, make_cell, [(0.6, end), (0.7, end)], control=0.9)
    assert list(found) == pytest.approx([0.9, 0.855])


def test_the_widest_shared_range_is_taken():
    assert intersect_spans([(0.0, 3.0), (0.0, 3.0), (4.0, 5.0), (4.0, 5.0)], 2) == (0.0, 3.0)


def test_a_method_with_one_setting_has_no_part_in_the_choice(world, make_cell):
    assert find_levels(world, make_cell, [(0.6, 0.7), (0.8, 0.9), (0.65,)])[0] == (0.7,)


def test_levels_are_not_rounded_out_of_the_shared_range(world, make_cell):
    found, _ = find_levels(world, make_cell, [(0.6001, 0.6005), (0.6001, 0.6005)])
    assert list(found) == pytest.approx([0.6004, 0.6002], abs=1e-9)


def test_curves_whose_settings_have_equal_cider_have_no_span(monkeypatch):
    ends = iter([(0.8, 0.8), (0.7, 0.8)])
    monkeypatch.setattr("pipeline.analysis.levels._find_covered_range", lambda curve, keys: next(ends))
    assert _collect_spans([SimpleNamespace(points=(1, 2))] * 2, CIDER) == [(0.7, 0.8)]
