import io
from itertools import pairwise

import pytest

from pipeline.reporting.figures import curve_panels, curve_png
from pipeline.reporting.results import read_results
from pipeline.reporting.selection import ReportSettings, choose_all
from pipeline.reporting.svg import drawings


def read(world):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    return results, choose_all(results, ReportSettings())


def test_a_panel_a_judge_a_line_a_method_a_spot_a_setting(world):
    panels = curve_panels(*read(world))
    assert [panel.judge for panel in panels] == ["own", "before", "judge"]
    own, before, judge = panels
    assert {series.label: len(series.spots) for series in own.series} == {
        "mle": 1, "psst_multinomial": 3, "st_multinomial": 3, "luo": 2
    }  # fmt: skip
    psst = own.series[1]
    assert [spot.tag for spot in psst.spots] == ["0.001", "0.005", "0.02"]
    assert [spot.chosen for spot in psst.spots] == [False, True, False]
    assert psst.spots[0].x == pytest.approx(0.975)  # the test split: (.96 + .97) / 2 + .01
    assert psst.spots[0].y == pytest.approx(74.5)
    assert psst.spots[0].spread == pytest.approx((0.00707, 0.707), rel=1e-2)
    assert len(psst.spots[0].seeds) == 2
    assert (before.human, judge.human) == ((61.0, 61.0), (41.0, 41.0))
    assert judge.series[1].spots[0].y == pytest.approx(54.5)


def test_hovering_gives_the_settings_seeds_and_values(world):
    label = curve_panels(*read(world))[0].series[1].spots[1].label
    assert (
        label == "psst_multinomial, λ 0.005, ρ 0.25, seeds 1 2, CIDEr 0.945±0.007, R@10 86.5±0.7, chosen on validation"
    )


def test_a_varied_rho_makes_a_line_each(world, make_cell):
    cells = [make_cell("psst", 0.9, 70.0, **{"lambda": 0.1, "rho": rho, "seed": 1}) for rho in (0.0, 0.5)]
    world.write(cells, [])
    results = read_results(world.sweep, [])
    assert [series.label for series in curve_panels(results, [])[0].series] == ["psst ρ 0", "psst ρ 0.5"]


def test_what_was_not_measured_is_not_drawn(world, make_cell):
    entry = make_cell("luo", 0.9, 70.0, **{"lambda": 0.5, "seed": 1})
    del entry["test"]["judge"], entry["test"]["human"]
    lost = make_cell("luo", None, 80.0, **{"lambda": 0.9, "seed": 1})
    del lost["test"]["human"]
    world.write([entry, lost], [])
    results = read_results(world.sweep, [])
    own, before, judge = curve_panels(results, [])
    assert len(own.series[0].spots) == len(before.series[0].spots) == 1
    assert judge.empty
    assert judge.human is own.human is None
    assert curve_png([own, before, judge]).startswith(b"\x89PNG")


def test_png_is_deterministic_and_as_large_as_expected(world):
    from PIL import Image

    panels = curve_panels(*read(world))
    first = curve_png(panels)
    assert first == curve_png(panels)
    with Image.open(io.BytesIO(first)) as image:
        assert image.size == (1980, 735)
        assert "Software" not in image.info


def test_pixels_are_linear_in_the_values_and_shared_by_the_panels(world):
    own, before, judge = drawings(curve_panels(*read(world)))
    assert own.x == before.x == judge.x
    assert own.y == before.y == judge.y
    y = own.y
    assert y.pixel(y.low) == y.start
    assert y.pixel(y.high) == y.end
    assert y.pixel((y.low + y.high) / 2) == pytest.approx((y.start + y.end) / 2, abs=0.06)
    assert y.end < y.start  # up is more
    marks = own.lines[1].marks
    assert marks[0].y > marks[1].y > marks[2].y
    assert marks[0].x > marks[1].x > marks[2].x
    assert all(
        y.end <= mark.y <= y.start for drawing in (own, before, judge) for line in drawing.lines for mark in line.marks
    )
    assert own.human == (own.y.pixel(60.0), own.y.pixel(60.0))


def test_ticks_are_round_numbers(world):
    drawing = drawings(curve_panels(*read(world)))[0]
    values = [float(text) for _, text in drawing.y.ticks]
    assert 3 <= len(values) <= 7
    steps = {round(b - a, 9) for a, b in pairwise(values)}
    assert len(steps) == 1
    assert steps <= {1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 25.0}


def test_one_point_and_nothing_at_all_can_be_laid_out(world, make_cell):
    world.write([make_cell("luo", 0.9, 70.0, seed=1)], [])
    results = read_results(world.sweep, [])
    (line,) = drawings(curve_panels(results, []))[0].lines
    assert len(line.marks) == 1
    nothing = drawings(curve_panels(results, [], metric="SPICE"))
    assert all(drawing.panel.empty for drawing in nothing)
