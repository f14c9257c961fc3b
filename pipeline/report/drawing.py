"""Line plots by matplotlib, as PNG files and as SVG for the page."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from markupsafe import Markup

from pipeline.report.plot_axes import draw_panel, escape_math, label_points
from pipeline.report.plot_elements import LineStyle, PlotPanel
from pipeline.report.plot_svg import extract_svg_content

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 317, 310  # size of a panel in points, and in pixels of its SVG
LARGE, SMALL = (520, 350), (360, 290)  # size of the large chart in points, on wide and on narrow screens
LABEL_SHARE = 0.4  # largest share of a chart's width for the labels of its lines
MAX_LABELLED_ENDS = 8  # lines; in a panel with more lines, only chosen settings are labelled


def draw_panels_png(panels: Sequence[PlotPanel]) -> bytes:
    """Draw panels as PNG: up to three in one row, more in two rows, with one legend of all lines below.

    Panels with equal axis labels share a scale.
    """
    from matplotlib.figure import Figure

    columns = len(panels) if len(panels) <= 3 else (len(panels) + 1) // 2
    rows = -(-len(panels) // columns)
    size = max(WIDTH * columns / 72, 5.5), HEIGHT * rows / 72
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for n, (axes, panel) in enumerate(zip(grid.flat, panels, strict=False)):
        draw_panel(axes, panel, panels)
        if n % columns and panels[n - 1].y_label == panel.y_label:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
        if n + columns < len(panels) and panels[n + columns].x_label == panel.x_label:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
        axes.set_title(escape_math(panel.title), fontsize=10, loc="left")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    for axes in grid.flat[1:]:  # a panel may have lines that the first panel lacks
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    if handles:
        # an entry takes 0.5 inches for the sample of its line and 0.075 inches per letter
        max_columns = int(figure.get_figwidth() / (0.5 + 0.075 * max(map(len, labels))))
        columns = max(1, min(len(labels), 5, max_columns))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        figure.set_figheight(figure.get_figheight() + 0.41 + 0.19 * -(-len(labels) // columns))
    _fix_layout(figure)  # the labels need the axes' positions
    for axes, panel in zip(grid.flat, panels, strict=False):
        label_points(axes, panel.series, label_ends=len(panel.series) <= MAX_LABELLED_ENDS)
    return encode_png(figure)


def _fix_layout(figure: Figure) -> None:
    """Compute the figure's layout once; savefig would compute it again, which takes as long as all other drawing."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
        figure.set_layout_engine(None)


def encode_png(figure: Figure) -> bytes:
    """Return the figure as PNG without version and date, so that equal figures give equal bytes."""
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def draw_panels_svg(panels: Sequence[PlotPanel], name: str) -> list[tuple[PlotPanel, Markup]]:
    """Draw each panel as the content of an <svg>, with the scales of the PNG; its ids begin with `name`.

    Line n is in groups with data-line="n". Each of its markers is in a group of class `point` with the hover label.
    """
    from matplotlib.figure import Figure

    result = []
    for n, panel in enumerate(panels, 1):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), frameon=False)
        axes = figure.add_axes((0.15, 0.13, 0.82, 0.85))
        draw_panel(axes, panel, panels)
        result.append((panel, extract_svg_content(figure, f"{name}-{n}", panel.series)))
    return result


def draw_labelled_svg(panel: PlotPanel, name: str, size: tuple[int, int] = LARGE) -> Markup:
    """Draw a chart of `size` as the content of an <svg>, with a label for each line, joined to its rightmost point.

    The labels are stacked at the right, so that they cover no marker. A label that is longer than LABEL_SHARE of the
    chart is wrapped.
    """
    from matplotlib.figure import Figure

    figure, font_size = Figure(figsize=(size[0] / 72, size[1] / 72), frameon=False), 11 if size == LARGE else 9.5
    line_ends = [(series, max(series.points, key=lambda point: point.x)) for series in panel.series if series.points]
    max_letters = int(LABEL_SHARE * size[0] / (0.6 * font_size))
    labels = {
        series.label: textwrap.wrap(series.label, max_letters, break_on_hyphens=False) or [""]
        for series, _ in line_ends
    }
    # width reserved for the labels, in points
    label_width = 14 + 0.6 * font_size * max((len(line) for label in labels.values() for line in label), default=0)
    axes = figure.add_axes(
        (46 / size[0], 42 / size[1], (size[0] - 46 - label_width) / size[0], (size[1] - 46) / size[1])
    )
    draw_panel(axes, panel, [panel])
    line_ends.sort(key=lambda line: line[1].y)
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [float(to_axes.transform((point.x, point.y))[1]) for _, point in line_ends]
    label_heights = [(0.25 + 1.2 * len(labels[series.label])) * font_size / (size[1] - 46) for series, _ in line_ends]
    heights = _spread_heights(ends, label_heights)
    for (series, point), height in zip(line_ends, heights, strict=True):
        colour = series.style.options["color"]
        label = escape_math("\n".join(labels[series.label]))
        axes.annotate(label, (point.x, point.y), xytext=(1.02, height), textcoords="axes fraction",
                      va="center", fontsize=font_size, color=colour, annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkB": 5,
                                  "relpos": (0, 0.5)})  # fmt: skip
    return extract_svg_content(figure, name, panel.series)


def _spread_heights(heights: Sequence[float], label_heights: Sequence[float]) -> list[float]:
    """Return ascending heights, close to `heights`, at which labels of the sizes `label_heights` do not overlap.

    Heights and sizes are shares of the axes' height. The heights are from 0 to about 1. The lowest are below 0 where
    the labels together are higher than the axes.
    """
    distances = [(lower + upper) / 2 for lower, upper in pairwise(label_heights)]
    result: list[float] = []
    for n, height in enumerate(heights):
        result.append(max(height, result[-1] + distances[n - 1]) if result else max(height, 0.0))
    limit = 1.02 - label_heights[-1] / 2 if result else 1.0  # labels may reach a little beyond the axes
    for n in reversed(range(len(result))):
        result[n] = min(result[n], limit)
        limit = result[n] - distances[n - 1] if n else limit
    return result


def draw_swatch(style: LineStyle) -> Markup:
    """Draw a line and its marker, 28 × 16 pixels, as the content of an <svg>."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(28 / 72, 16 / 72), frameon=False)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.plot([0, 0.5, 1], [0, 0, 0], markevery=[1], **style.options)
    axes.set_xlim(0, 1)
    return extract_svg_content(figure, f"swatch-{style.name}")
