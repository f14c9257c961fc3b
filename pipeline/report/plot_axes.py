"""Axes of line plots by matplotlib: scales, lines with error bars, and labels that cover nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign, log10, nan
from typing import Any

from pipeline.report.plot_elements import INK, PAPER, RULE, SOFT, PlotPanel, PlotPoint, PlotSeries

# offsets in points from a marker to its label, in the order of trial
PLACES = [
    (x * far, y * far)
    for far in (8, 13, 19)
    for x, y in ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1.2), (0, -1.2), (1.2, 0), (-1.2, 0))
]
ROUND = (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)  # ticks of an axis that is logarithmic beyond 1


def escape_math(text: str) -> str:
    """Return `text` with dollar signs escaped, which matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def draw_panel(axes: Any, panel: PlotPanel, panels: Sequence[PlotPanel]) -> None:
    """Draw the panel with scales that fit all of `panels` with the same axis labels."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

    sharing = [each for each in panels if each.across == panel.across]
    spots = [spot for each in sharing for series in each.series for spot in series.spots]
    xs = [x for spot in spots for x in (spot.x, *(spot.bars or ())[:2], *(seed[0] for seed in spot.seeds))]
    axes.set_xlim(_limits([*xs, *(x for each in sharing for x in each.shows[0])], panel.logarithmic))
    sharing = [each for each in panels if each.up == panel.up]
    spots = [spot for each in sharing for series in each.series for spot in series.spots]
    ys = [y for spot in spots for y in (spot.y, *(spot.bars or ())[2:], *(seed[1] for seed in spot.seeds))]
    ys += [value for each in sharing for value in (*(each.level or ()), *each.shows[1])]
    axes.set_ylim(_limits(ys, panel.logarithmic))
    axes.set_xlabel(panel.across, color=INK)
    axes.set_ylabel(panel.up, color=INK)
    axes.grid(color=RULE, linewidth=0.8)
    axes.tick_params(length=0, labelcolor=SOFT, labelsize=9)
    axes.set_axisbelow(True)
    axes.set_frame_on(False)
    if panel.logarithmic:
        axes.set_xscale("symlog", linthresh=1)
        axes.set_yscale("symlog", linthresh=1)
    for axis in (axes.xaxis, axes.yaxis):
        if panel.logarithmic:
            axis.set_major_locator(FixedLocator(ROUND))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_locator(FixedLocator([]))
        else:
            axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_gid("axis")
    if panel.empty:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=SOFT)
    if panel.level:
        low, high = panel.level
        if high - low >= 0.05:
            axes.axhspan(low, high, color=SOFT, alpha=0.18, linewidth=0)
        else:
            axes.axhline(low, color=SOFT, linestyle=(0, (5, 4)), linewidth=1.2)
        axes.annotate(panel.level_words, (0.01, low), xycoords=("axes fraction", "data"), xytext=(0, -3),
                      textcoords="offset points", va="top", fontsize=8.5, color=SOFT)  # fmt: skip
    for n, series in enumerate(panel.series):
        _draw_series(axes, series, n)


def _draw_series(axes: Any, series: PlotSeries, n: int) -> None:
    options, spots = series.style.options, series.spots
    dots = {"color": options["color"], "gid": f"line-{n}"}
    gap = (nan, nan)
    bars = [
        place
        for spot in spots
        if spot.bars
        for left, right, low, high in [spot.bars]
        for place in ((left, spot.y), (right, spot.y), gap, (spot.x, low), (spot.x, high), gap)
    ]
    if bars:
        axes.plot(*zip(*bars, strict=True), **dots, linewidth=0.9)
    seeds = [seed for spot in spots for seed in spot.seeds]
    rings = [(spot.x, spot.y) for spot in spots if spot.chosen]
    if seeds:
        axes.plot(*zip(*seeds, strict=True), "o", **dots, markersize=3, markeredgewidth=0, alpha=0.45)
    if rings:
        axes.plot(*zip(*rings, strict=True), "o", **dots, markersize=13, markerfacecolor="none", markeredgewidth=1.3)
    places = [spot.x for spot in spots], [spot.y for spot in spots]
    axes.plot(*places, **options, label=escape_math(series.label), gid=f"points-{n}")


def label_points(axes: Any, series: Sequence[PlotSeries], ends: bool) -> None:
    """Label chosen settings with their λ, and the last setting of each line if `ends`.

    A label takes the first offset at which it covers no marker, seed, bar, ring or other label; without one it is
    omitted.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    marks, unit = [mark for line in series for spot in line.spots for mark in _discs(axes, spot)], axes.figure.dpi / 72
    taken: list[Bbox] = []
    for line in series:
        for n, spot in enumerate(line.spots):
            if not spot.tag or not (spot.chosen or (ends and n == len(line.spots) - 1)):
                continue
            text = axes.annotate(spot.tag, (spot.x, spot.y), xytext=(0, 0), textcoords="offset points", fontsize=7,
                                 color=line.style.options["color"],
                                 path_effects=[withStroke(linewidth=2.5, foreground=PAPER)])  # fmt: skip
            for right, up in PLACES:
                text.set_position((right, up))
                text.set_horizontalalignment("left" if right > 0 else "right" if right < 0 else "center")
                text.set_verticalalignment("bottom" if up > 0 else "top" if up < 0 else "center")
                box = text.get_window_extent()
                inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and axes.bbox.y0 <= box.y0 <= axes.bbox.y1
                free = not any(box.padded(r * unit).contains(x, y) for x, y, r in marks)
                if inside and free and not any(box.overlaps(other) for other in taken):
                    taken.append(box)
                    break
            else:
                text.remove()


def _discs(axes: Any, spot: PlotPoint) -> list[tuple[float, float, float]]:
    """Return discs that labels must not cover, along marker, ring, seeds and bars: x, y in pixels, radius in points."""
    left, right, low, high = spot.bars or (spot.x, spot.x, spot.y, spot.y)
    bars = [(left + n / 8 * (right - left), spot.y) for n in range(9)]
    bars += [(spot.x, low + n / 8 * (high - low)) for n in range(9)]
    discs = [((spot.x, spot.y), 8.0 if spot.chosen else 5.0), *((seed, 2.0) for seed in spot.seeds)]
    return [(*axes.transData.transform(place), radius) for place, radius in [*discs, *((bar, 1.0) for bar in bars)]]


def _limits(values: Sequence[float], logarithmic: bool = False) -> tuple[float, float]:
    """Return the limits of an axis, with a margin of 6 % of its length around the values."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if logarithmic and max(-low, high) > 1:  # linear up to 1, a length equal to one decade
        ends = [copysign(1 + log10(abs(end)), end) if abs(end) > 1 else end for end in (low, high)]
        ends = [ends[0] - 0.06 * (ends[1] - ends[0]), ends[1] + 0.06 * (ends[1] - ends[0])]
        low, high = (copysign(10 ** (abs(end) - 1), end) if abs(end) > 1 else end for end in ends)
        return low, high
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin
