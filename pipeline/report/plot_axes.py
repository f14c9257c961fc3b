"""Axes of line plots by matplotlib: scales, lines with error bars, and labels without overlap."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign, log10, nan
from typing import TYPE_CHECKING

from pipeline.report.plot_elements import INK, PAPER, RULE, SOFT, PlotPanel, PlotPoint, PlotSeries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# offsets in points from a marker to its label, in the order of trial
LABEL_OFFSETS = [
    (x * distance, y * distance)
    for distance in (8, 13, 19)
    for x, y in ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1.2), (0, -1.2), (1.2, 0), (-1.2, 0))
]
TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)  # ticks of an axis that is logarithmic beyond 1


def escape_math(text: str) -> str:
    """Return `text` with its dollar signs escaped, because matplotlib would parse them as mathematics."""
    return text.replace("$", r"\$")


def draw_panel(axes: Axes, panel: PlotPanel, panels: Sequence[PlotPanel]) -> None:
    """Draw the panel; its axes have the scales of all of `panels` with the same axis label."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

    same_x = [other for other in panels if other.x_label == panel.x_label]
    points = [point for other in same_x for series in other.series for point in series.points]
    xs = [x for point in points for x in (point.x, *(point.bars or ())[:2], *(seed[0] for seed in point.seeds))]
    xs += [x for other in same_x for x in other.includes[0]]
    axes.set_xlim(_compute_limits(xs, panel.logarithmic))
    same_y = [other for other in panels if other.y_label == panel.y_label]
    points = [point for other in same_y for series in other.series for point in series.points]
    ys = [y for point in points for y in (point.y, *(point.bars or ())[2:], *(seed[1] for seed in point.seeds))]
    ys += [y for other in same_y for y in (*(other.band or ()), *other.includes[1])]
    axes.set_ylim(_compute_limits(ys, panel.logarithmic))
    axes.set_xlabel(panel.x_label, color=INK)
    axes.set_ylabel(panel.y_label, color=INK)
    axes.grid(color=RULE, linewidth=0.8)
    axes.tick_params(length=0, labelcolor=SOFT, labelsize=9)
    axes.set_axisbelow(True)
    axes.set_frame_on(False)
    if panel.logarithmic:
        axes.set_xscale("symlog", linthresh=1)
        axes.set_yscale("symlog", linthresh=1)
    for axis in (axes.xaxis, axes.yaxis):
        if panel.logarithmic:
            axis.set_major_locator(FixedLocator(TICKS))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_locator(FixedLocator([]))
        else:
            axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_gid("axis")
    if panel.empty:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=SOFT)
    if panel.band:
        low, high = panel.band
        if high - low >= 0.05:
            axes.axhspan(low, high, color=SOFT, alpha=0.18, linewidth=0)
        else:
            axes.axhline(low, color=SOFT, linestyle=(0, (5, 4)), linewidth=1.2)
        axes.annotate(panel.band_label, (0.01, low), xycoords=("axes fraction", "data"), xytext=(0, -3),
                      textcoords="offset points", va="top", fontsize=8.5, color=SOFT)  # fmt: skip
    for n, series in enumerate(panel.series):
        _draw_series(axes, series, n)


def _draw_series(axes: Axes, series: PlotSeries, n: int) -> None:
    options, points = series.style.options, series.points
    style = {"color": options["color"], "gid": f"line-{n}"}
    gap = (nan, nan)
    bars: list[tuple[float, float]] = []
    for point in points:
        if point.bars:
            left, right, low, high = point.bars
            bars += [(left, point.y), (right, point.y), gap, (point.x, low), (point.x, high), gap]
    if bars:
        axes.plot(*zip(*bars, strict=True), **style, linewidth=0.9)
    seeds = [seed for point in points for seed in point.seeds]
    rings = [(point.x, point.y) for point in points if point.chosen]
    if seeds:
        axes.plot(*zip(*seeds, strict=True), "o", **style, markersize=3, markeredgewidth=0, alpha=0.45)
    if rings:
        axes.plot(*zip(*rings, strict=True), "o", **style, markersize=13, markerfacecolor="none", markeredgewidth=1.3)
    coordinates = [point.x for point in points], [point.y for point in points]
    axes.plot(*coordinates, **options, label=escape_math(series.label), gid=f"points-{n}")


def label_points(axes: Axes, series: Sequence[PlotSeries], label_ends: bool) -> None:
    """Label chosen settings with their tags, such as λ, and the last setting of each line if `label_ends`.

    A label takes the first offset at which it covers no marker, seed, ring or other label, and no tested point of a
    bar. Its sides and lower edge are within the axes. Without such an offset the label is omitted.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    unit = axes.figure.dpi / 72  # pixels per point
    discs = [disc for line in series for point in line.points for disc in _list_discs(axes, point)]
    boxes: list[Bbox] = []
    for line in series:
        for n, point in enumerate(line.points):
            if not point.tag or not (point.chosen or (label_ends and n == len(line.points) - 1)):
                continue
            text = axes.annotate(point.tag, (point.x, point.y), xytext=(0, 0), textcoords="offset points", fontsize=7,
                                 color=line.style.options["color"],
                                 path_effects=[withStroke(linewidth=2.5, foreground=PAPER)])  # fmt: skip
            for dx, dy in LABEL_OFFSETS:
                text.set_position((dx, dy))
                text.set_horizontalalignment("left" if dx > 0 else "right" if dx < 0 else "center")
                text.set_verticalalignment("bottom" if dy > 0 else "top" if dy < 0 else "center")
                box = text.get_window_extent()
                inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0 <= axes.bbox.y1
                free = not any(box.padded(r * unit).contains(x, y) for x, y, r in discs)
                if inside and free and not any(box.overlaps(other) for other in boxes):
                    boxes.append(box)
                    break
            else:
                text.remove()


def _list_discs(axes: Axes, point: PlotPoint) -> list[tuple[float, float, float]]:
    """Return discs that labels must not cover: x, y in pixels, radius in points.

    There is one disc for the marker with its ring, one for each seed, and nine at equal distances along each bar.
    """
    left, right, low, high = point.bars or (point.x, point.x, point.y, point.y)
    discs = [((point.x, point.y), 8.0 if point.chosen else 5.0)]
    discs += [(seed, 2.0) for seed in point.seeds]
    discs += [((left + n / 8 * (right - left), point.y), 1.0) for n in range(9)]
    discs += [((point.x, low + n / 8 * (high - low)), 1.0) for n in range(9)]
    return [(*axes.transData.transform(centre), radius) for centre, radius in discs]


def _compute_limits(values: Sequence[float], logarithmic: bool = False) -> tuple[float, float]:
    """Return the limits of an axis, with a margin on each side of 6 % of the distance between the outermost values.

    Equal values have a margin of 10 % of the value, or of 1 at 0. On a logarithmic axis, distances beyond 1 are in
    decades, and the margin of equal values beyond 1 is a tenth of a decade.
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if logarithmic and max(-low, high) > 1:  # the axis is linear up to 1; its linear part is about a decade long
        ends = [copysign(1 + log10(abs(end)), end) if abs(end) > 1 else end for end in (low, high)]
        margin = 0.06 * (ends[1] - ends[0]) or 0.1
        ends = [ends[0] - margin, ends[1] + margin]
        low, high = (copysign(10 ** (abs(end) - 1), end) if abs(end) > 1 else end for end in ends)
        return low, high
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin
