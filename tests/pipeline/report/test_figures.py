from dataclasses import replace

import pytest

from pipeline.analysis.bootstrap import Resamples
from pipeline.analysis.comparison import Comparison, ComparisonSlice, CurveReading, Estimate
from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import add_frozen_speakers, read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.analysis.tradeoff import build_curves
from pipeline.report.figures import build_curve_panels, build_drift_panel, build_rho_panels, choose_styles
from pipeline.report.method_names import assign_method_colours, replace_method_names


def read(world):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    return results, choose_all(results, ReportSettings())


def test_each_judge_has_a_panel_each_method_a_line_and_each_setting_a_point(world):
    panels = build_curve_panels(*read(world))
    assert [panel.name for panel in panels] == ["own", "pretrained", "judge"]
    own, pretrained, judge = panels
    assert {series.label: len(series.points) for series in own.series} == {
        "MLE": 1, "PSST-Multinomial": 3, "ST-Multinomial": 3, "Luo et al.": 2
    }  # fmt: skip
    psst = own.series[1]
    assert [point.tag for point in psst.points] == ["λ 0.001", "λ 0.005", "λ 0.02"]
    assert [point.chosen for point in psst.points] == [False, True, False]
    assert psst.points[0].x == pytest.approx(0.975)  # the test split: (.96 + .97) / 2 + .01
    assert psst.points[0].y == pytest.approx(74.5)
    # sample standard deviations: .00707 of .97 and .98, and .707 of 74 and 75
    assert psst.points[0].bars == pytest.approx((0.96793, 0.98207, 73.793, 75.207), rel=1e-4)
    assert len(psst.points[0].seeds) == 2
    assert (pretrained.band, judge.band) == ((61.0, 61.0), (41.0, 41.0))
    assert judge.series[1].points[0].y == pytest.approx(54.5)


def test_points_of_guidance_name_gamma(world, guidance_cells):
    world.write(guidance_cells, [])
    found = {series.label: series.points for series in build_curve_panels(*read(world))[0].series}
    assert [point.tag for point in found["Guidance"]] == ["γ 1", "γ 1.5", "γ 2"]
    assert found["Guidance"][2].label.startswith("Guidance, λ 0, γ 2, seed 1, ")
    assert [point.tag for point in found["Luo et al. γ 1.5"]] == ["λ 0.5", "λ 0.9"]


def test_hovering_gives_the_settings_seeds_and_values(world):
    label = build_curve_panels(*read(world))[0].series[1].points[1].label
    assert (
        label == "PSST-Multinomial, λ 0.005, ρ 0.25, seeds 1 2, CIDEr 0.945±0.007, R@10 86.5±0.7, chosen on validation"
    )


def test_each_rho_has_its_own_line(world, make_cell):
    cells = [make_cell("psst", 0.9, 70.0, **{"lambda": 0.1, "rho": rho, "seed": 1}) for rho in (0.0, 0.5)]
    world.write(cells, [])
    results = read_results(world.sweep, [])
    assert [series.label for series in build_curve_panels(results, [])[0].series] == ["PSST ρ 0", "PSST ρ 0.5"]


def test_unmeasured_values_are_not_drawn(world, make_cell):
    entry = make_cell("luo", 0.9, 70.0, **{"lambda": 0.5, "seed": 1})
    del entry["test"]["judges"]["judge"], entry["test"]["judges"]["own"]["human"]
    without_cider = make_cell("luo", None, 80.0, **{"lambda": 0.9, "seed": 1})
    del without_cider["test"]["judges"]["judge"], without_cider["test"]["judges"]["own"]["human"]
    world.write([entry, without_cider], [])
    results = read_results(world.sweep, [])
    own, pretrained = build_curve_panels(results, [])  # no run has the independent judge
    assert len(own.series[0].points) == len(pretrained.series[0].points) == 1
    assert own.band is None
    unmeasured = build_curve_panels(results, [], metric="SPICE")
    assert [panel.name for panel in unmeasured] == ["own", "pretrained", "judge"]
    assert all(panel.empty for panel in unmeasured)


def test_methods_have_colours_curves_markers_and_frozen_speakers_dashes(full_world):
    results = add_frozen_speakers(read_results(full_world.sweep, full_world.evaluations, first=("mle",)), ["luo"])
    style = choose_styles(results)
    assert len({style[curve.label] for curve in build_curves(results)}) == len(build_curves(results)) == 10
    rhos = [style[f"psst_multinomial ρ {rho}"] for rho in ("0", "0.25", "0.5", "0.75", "1")]
    assert len({one.colour for one in rhos}) == 1
    assert len({one.marker for one in rhos}) == 5
    assert style["psst_multinomial"] == rhos[0]
    assert style["frozen_luo"].colour == style["luo"].colour
    assert (style["frozen_luo"].dashed, style["luo"].dashed) == (True, False)


def test_a_frozen_speaker_is_drawn_where_it_differs_from_its_method(full_world):
    results = add_frozen_speakers(read_results(full_world.sweep, full_world.evaluations, first=("mle",)), ["luo"])
    panels = {panel.name: panel for panel in build_curve_panels(results, [])}
    assert list(panels) == ["own", "adapted", "pretrained", "judge"]
    points_by_panel = {name: {series.label: series.points for series in panel.series} for name, panel in panels.items()}
    assert [point.y for point in points_by_panel["own"]["Luo et al. (frozen)"]] == [
        point.y for point in points_by_panel["adapted"]["Luo et al."]
    ]
    assert len(points_by_panel["own"]["Luo et al. (frozen)"]) == 3
    assert not points_by_panel["judge"]["Luo et al. (frozen)"]


def test_drift_compares_human_captions_with_the_speakers(world):
    panel = build_drift_panel(*read(world))
    assert panel.band == (61.0, 61.0)
    luo = panel.series[3]
    assert [(point.x, point.y) for point in luo.points] == [(71.0, 60.0), (79.0, 60.0)]
    assert luo.points[1].label == "Luo et al., λ 0.9, seed 1, own captions R@10 79.0, human captions R@10 60.0"


def test_drift_needs_human_captions(world, make_cell):
    entry = make_cell("luo", 0.9, 70.0, **{"lambda": 0.5, "seed": 1})
    del entry["test"]["judges"]["own"]["human"]
    world.write([entry], [])
    assert build_drift_panel(read_results(world.sweep, []), []) is None


def make_rho_comparison(world, found):
    """Return results and a comparison that has only `found`: the estimates by judge for each ρ of PSST."""
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    curves = [curve for curve in build_curves(results) if curve.method == "psst_multinomial"]
    readings = tuple(
        CurveReading(curve, None, curve.points[0], {make_recall_keys(judge): value for judge, value in one.items()})
        for curve, one in zip(curves, found, strict=True)
    )
    slice_ = ComparisonSlice("CIDEr", 0.9, readings)
    return results, Comparison(results, (), (), (slice_,), None, Resamples(0))


def test_recall_against_rho_has_its_intervals(full_world):
    found = [{"own": Estimate(70.0 + n, (68.0 + n, 73.0 + n)), "judge": Estimate(50.0 - n)} for n in range(5)]
    own, judge = build_rho_panels(*make_rho_comparison(full_world, found))
    (line,) = own.series
    assert line.label == "PSST-Multinomial at CIDEr 0.900"
    assert [point.x for point in line.points] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [point.y for point in line.points] == [70.0, 71.0, 72.0, 73.0, 74.0]
    assert line.points[1].bars == (0.25, 0.25, 69.0, 74.0)
    assert line.points[1].label == "PSST-Multinomial at CIDEr 0.900, ρ 0.25, R@10 71.0 [69.0, 74.0]"
    assert judge.series[0].points[1].bars is None


def test_a_lower_bound_is_labelled_at_least(full_world):
    results, comparison = make_rho_comparison(full_world, [{"own": Estimate(70.0)}] * 5)
    slice_ = comparison.along_rho[0]
    first, *rest = slice_.readings
    slice_ = replace(slice_, readings=(replace(first, is_lower_bound=True), *rest))
    (panel,) = build_rho_panels(results, replace(comparison, along_rho=(slice_,)))
    labels = [point.label for point in panel.series[0].points]
    assert labels[0].endswith("ρ 0, R@10 at least 70.0")
    assert not any("at least" in label for label in labels[1:])


def test_a_judge_without_values_along_rho_has_no_panel(full_world):
    found = [{"own": Estimate(70.0)}] * 5
    assert [panel.name for panel in build_rho_panels(*make_rho_comparison(full_world, found))] == ["own"]


def test_a_methods_colour_does_not_depend_on_the_other_methods():
    two, five = (
        assign_method_colours(["luo", "own"]),
        assign_method_colours(["mle", "psst_multinomial", "luo", "another", "own"]),
    )
    assert two["luo"] == five["luo"]
    assert len(set(five.values())) == 5


def test_published_names_replace_keys_but_not_ordinary_words_or_paths():
    assert replace_method_names("frozen_psst_multinomial ρ 0.25") == "PSST-Multinomial (frozen) ρ 0.25"
    assert replace_method_names("luo *") == "Luo et al. *"
    assert replace_method_names("my_method") == "my_method"
    assert (
        replace_method_names("CIDEr less that of frozen_luo ρ 0.5, of mle.")
        == "CIDEr less that of Luo et al. (frozen) ρ 0.5, of MLE."
    )
    assert replace_method_names("guidance γ 2") == "Guidance γ 2"
    assert replace_method_names("more guidance") == "more guidance"
    for other in ("mle/metrics.json", "train@mle", "data=mle|x", "`luo`", "methods.luo.lambda"):
        assert replace_method_names(other) == other


def test_the_methods_of_the_psst_paper_have_a_colour_each():
    names = ["mle", "psst_multinomial", "psst_gumbel", "st_multinomial", "st_gumbel", "reinforce", "luo"]
    assert len({*assign_method_colours(names).values()}) == 7
