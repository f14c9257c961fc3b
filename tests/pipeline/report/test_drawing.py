import io
import re
import warnings
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from PIL import Image

from pipeline.report.drawing import LARGE, SMALL, draw_labelled_svg, draw_panels_png, draw_panels_svg, draw_swatch
from pipeline.report.plot_elements import COLOURS, MARKERS, LineStyle, PlotPanel, PlotPoint, PlotSeries

RISING = PlotSeries("a & b", LineStyle(1, 0), tuple(PlotPoint(x, 10 * x, f"a, x {x:g}") for x in (0.0, 1.0, 4.0)))
NOISY = PlotSeries(
    "noisy $x$",
    LineStyle(2, 3, dashed=True),
    (
        PlotPoint(
            2.0, 30.0, "<b>", bars=(1.0, 3.0, 25.0, 35.0), seeds=((1.5, 28.0), (2.5, 32.0)), tag="λ 2", chosen=True
        ),
    ),
)
ONE = PlotPanel("own", "Own listener", "across →", "up →", (RISING, NOISY), band=(5.0, 5.0), band_label="people")
OTHER = PlotPanel("judge", "Independent judge", "across →", "up →", (RISING, replace(NOISY, points=())))
EMPTY = replace(OTHER, series=())


def parse_panels(panels, name="chart"):
    return [ElementTree.fromstring(f"<svg>{drawn}</svg>") for _, drawn in draw_panels_svg(panels, name)]


def find_points(svg, line):
    """Return the positions of a line's markers with their labels."""
    groups = [group for each in svg.iter("g") if each.get("data-line") == str(line) for group in each
              if group.get("class") == "point"]  # fmt: skip
    return [(float(g.find("use").get("x")), float(g.find("use").get("y")), g.get("aria-label")) for g in groups]


def test_positions_are_linear_in_the_values_and_shared_by_the_panels():
    one, other = parse_panels([ONE, OTHER])
    found = find_points(one, 0)
    assert found == find_points(other, 0)
    (x0, y0, label), (x1, y1, _), (x4, y4, _) = found
    assert label == "a, x 0"
    assert (x4 - x1) / (x1 - x0) == pytest.approx(3, rel=0.01)
    assert (y4 - y1) / (y1 - y0) == pytest.approx(3, rel=0.01)
    assert x4 > x0
    assert y4 < y0  # y is 0 at the top
    assert find_points(other, 1) == []
    assert [point[2] for point in find_points(one, 1)] == ["<b>"]
    for group in one.iter("g"):
        if group.get("class") == "point":
            circle, marker = group.find("circle"), group.find("use")
            assert (circle.get("cx"), circle.get("cy")) == (marker.get("x"), marker.get("y"))
            assert group.find("title").text == group.get("aria-label")


def test_panels_with_other_axes_have_their_own_scale():
    far = replace(RISING, points=(PlotPoint(0.0, 400.0, "far"), PlotPoint(4.0, 0.0, "near")))
    expected = find_points(parse_panels([ONE])[0], 0)
    assert find_points(parse_panels([ONE, replace(OTHER, series=(far,))])[0], 0) != expected
    assert find_points(parse_panels([ONE, replace(OTHER, y_label="more →", series=(far,))])[0], 0) == expected


def test_axes_may_be_logarithmic_beyond_1_and_include_given_values():
    line = replace(RISING, points=tuple(PlotPoint(x, 1.0, f"{x}") for x in (1.0, 10.0, 100.0)))
    one, ten, hundred = find_points(parse_panels([PlotPanel("a", "A", "x", "y", (line,), logarithmic=True)])[0], 0)
    assert hundred[0] - ten[0] == pytest.approx(ten[0] - one[0], rel=0.01)
    panel = PlotPanel("a", "A", "x", "y", (line,), logarithmic=True, includes=((0.0,), ()))
    from_zero = find_points(parse_panels([panel])[0], 0)
    assert from_zero[0][0] > one[0]
    assert from_zero[2][0] == pytest.approx(hundred[0], abs=5)


def test_one_point_beyond_1_is_drawn_on_a_logarithmic_axis():
    line = replace(RISING, points=(PlotPoint(5.0, 5.0, "alone"),))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of an axis without length
        (svg,) = parse_panels([PlotPanel("a", "A", "x", "y", (line,), logarithmic=True)])
    assert len(find_points(svg, 0)) == 1


def test_bars_seeds_ring_and_band_are_drawn_with_their_line():
    (svg,) = parse_panels([ONE])
    groups = [group for group in svg.iter("g") if group.get("data-line") == "1"]
    bars, seeds, ring, line = groups
    x, y, _ = find_points(svg, 1)[0]
    numbers = [float(word) for word in bars.find("path").get("d").split() if word not in "ML"]
    assert numbers[1] == numbers[3] == y
    assert numbers[4] == numbers[6] == x
    assert (numbers[0] + numbers[2]) / 2 == pytest.approx(x, abs=0.1)  # the bar is from 1 to 3, with the point at 2
    assert len(list(seeds.iter("use"))) == 2
    assert [(float(use.get("x")), float(use.get("y"))) for use in ring.iter("use")] == [(x, y)]
    assert line.find("path").get("stroke-dasharray")
    assert any("people" in (text.text or "") for text in svg.iter("text"))
    without = parse_panels([replace(ONE, band=None)])[0]
    assert len(list(without.iter("path"))) == len(list(svg.iter("path"))) - 1


def test_ticks_are_round_numbers_and_hidden_from_screen_readers():
    (svg,) = parse_panels([ONE])
    across, up = [group for group in svg.iter("g") if group.get("aria-hidden") == "true"]
    for axis in (across, up):
        values = [float(text.text.replace("−", "-")) for text in list(axis.iter("text"))[:-1]]
        assert 3 <= len(values) <= 8
        steps = {round(b - a, 9) for a, b in pairwise(values)}
        assert len(steps) == 1
        assert steps <= {0.5, 1.0, 5.0, 10.0}


def test_an_svg_in_the_page_has_no_style_no_namespace_and_unique_ids():
    one, other = parse_panels([ONE, OTHER])
    for svg in (one, other):
        for element in svg.iter():
            assert ":" not in element.tag
            assert not {"style", "clip-path", "font-family"} & set(element.attrib)
            assert "#" not in element.get("fill", "") + element.get("stroke", "")
    ids = [[element.get("id") for element in svg.iter() if element.get("id")] for svg in (one, other)]
    assert all(ids)
    assert len({*ids[0], *ids[1]}) == len(ids[0]) + len(ids[1])
    assert {use.get("href") for use in one.iter("use")} <= {f"#{name}" for name in ids[0]}
    assert {use.get("fill") for use in one.iter("use")} >= {"var(--c1)", "var(--c2)"}


def test_a_single_point_and_an_empty_panel_can_be_drawn():
    (svg,) = parse_panels([replace(ONE, series=(replace(RISING, points=RISING.points[:1]),))])
    assert len(find_points(svg, 0)) == 1
    (svg,) = parse_panels([EMPTY])
    assert any(text.text == "not measured" for text in svg.iter("text"))


def test_a_swatch_has_line_and_marker_and_styles_repeat():
    drawn = ElementTree.fromstring(f"<svg>{draw_swatch(LineStyle(2, 3, dashed=True))}</svg>")
    assert len(list(drawn.iter("use"))) == 1
    (line,) = [path for path in drawn.iter("path") if not path.get("id")]
    assert line.get("stroke-dasharray")
    assert line.get("stroke") == "var(--c2)"
    assert LineStyle(0, 0).options == LineStyle(len(COLOURS), len(MARKERS)).options
    assert LineStyle(0, 0).name != LineStyle(0, 0, dashed=True).name


def read_size(png):
    with Image.open(io.BytesIO(png)) as image:
        assert "Software" not in image.info
        return image.size


def test_png_panels_are_side_by_side_and_four_in_two_rows():
    first = draw_panels_png([ONE, OTHER, OTHER])
    assert first == draw_panels_png([ONE, OTHER, OTHER])
    wide, high = read_size(first)
    assert read_size(draw_panels_png([ONE, OTHER, OTHER, OTHER]))[0] == pytest.approx(wide * 2 / 3, abs=1)
    assert read_size(draw_panels_png([ONE]))[0] == 825
    long = replace(ONE, series=tuple(replace(RISING, label=f"a rather long label {n}") for n in range(6)))
    assert read_size(draw_panels_png([long]))[1] > high  # the legend has more lines


def test_the_legend_has_the_lines_of_all_panels():
    only = replace(OTHER, series=(RISING,))
    assert draw_panels_png([only, ONE]) != draw_panels_png(
        [only, replace(ONE, series=(RISING, replace(NOISY, label="quiet")))]
    )


def test_the_png_shows_the_drawing():
    assert draw_panels_png([EMPTY]) != draw_panels_png([ONE]) != draw_panels_png([replace(ONE, band=None)])
    untagged = replace(ONE, series=(RISING, replace(NOISY, points=(replace(NOISY.points[0], tag=""),))))
    assert draw_panels_png([untagged]) != draw_panels_png([ONE])


LONG = "PSST-Multinomial, re-ranked by the listener that was pretrained on human captions"


@pytest.mark.parametrize("size", [LARGE, SMALL])
def test_labels_of_any_length_leave_room_for_the_lines_and_do_not_overlap(size):
    labels = ["short", f"{LONG} 1", f"{LONG} 2", "unbreakabl" + "e" * 90]
    lines = [PlotSeries(label, LineStyle(n, n), (PlotPoint(1.0, 5.0, label),)) for n, label in enumerate(labels)]
    drawn = draw_labelled_svg(replace(ONE, series=tuple(lines), includes=((0.0,), (0.0,))), "chart", size)
    svg = ElementTree.fromstring(f"<svg>{drawn}</svg>")
    ((x, _, _),) = find_points(svg, 0)
    assert x > 0.4 * size[0]
    placed = [
        (text.text, re.search(r"translate\(([\d.]+) ([\d.]+)", text.get("transform", ""))) for text in svg.iter("text")
    ]
    lines_of_labels = [(text, float(place[2])) for text, place in placed if place and float(place[1]) > x]
    assert "".join(text for text, _ in lines_of_labels if "eee" in text) == labels[3]
    assert sum("re-ranked" in text for text, _ in lines_of_labels) == 2
    heights = sorted(y for _, y in lines_of_labels)
    assert all(below - above > 8 for above, below in pairwise(heights))
    assert 0 < heights[0] < heights[-1] < size[1]


def test_a_chart_without_lines_states_that_nothing_was_measured():
    svg = ElementTree.fromstring(f"<svg>{draw_labelled_svg(EMPTY, 'chart')}</svg>")
    assert "not measured" in [text.text for text in svg.iter("text")]
