"""Line plots by matplotlib: PNG files, and SVG with colours and points that the page can address."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import copysign, log10, nan
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The first seven are Okabe & Ito 2008, distinguishable with every common colour blindness. page.css has all of them as
# --c0 … --c11, darker on white and lighter in dark mode.
COLOURS = ("#555555", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#6a51a3", "#9e2a2b", "#7a4a2a",
           "#23318f", "#6b7d00")  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
PAPER, INK, SOFT, RULE = "#ffffff", "#1b1f24", "#59626d", "#d9dee4"  # names in page.css: paper, ink, soft, rule
VARIABLES = {PAPER: "paper", INK: "ink", SOFT: "soft", RULE: "rule"} | {c: f"c{n}" for n, c in enumerate(COLOURS)}
SHOWN = {"fill", "fill-opacity", "opacity", "stroke", "stroke-width", "stroke-dasharray", "font-size", "text-anchor"}
WIDTH, HEIGHT = 317, 310  # a panel's size in points, and in pixels of its SVG
LARGE, SMALL = (520, 350), (360, 290)  # points of the large chart, and of the same on a phone
# offsets in points from a marker to its label, in the order of trial
PLACES = [
    (x * far, y * far)
    for far in (8, 13, 19)
    for x, y in ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1.2), (0, -1.2), (1.2, 0), (-1.2, 0))
]
CROWD = 8  # lines; with more lines only chosen settings are labelled
ROUND = (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)  # ticks of an axis that is logarithmic beyond 1


@dataclass(frozen=True)
class PlotPoint:
    """A point in a panel: one setting, in units of the axes."""

    x: float
    y: float
    label: str  # the text shown on hovering
    bars: tuple[float, float, float, float] | None = None  # ends of the error bars: left, right, bottom, top
    seeds: tuple[tuple[float, float], ...] = ()  # (x, y) of each seed; empty for one seed
    tag: str = ""  # "λ 0.01"; "" for a method without λ
    chosen: bool = False


@dataclass(frozen=True)
class LineStyle:
    """A line's style: the indices of its colour and marker, modulo their number."""

    colour: int
    marker: int
    dashed: bool = False

    @property
    def name(self) -> str:
        return f"{self.colour}-{self.marker}" + ("-dashed" if self.dashed else "")

    @property
    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of matplotlib's plot."""
        options = {"color": COLOURS[self.colour % len(COLOURS)], "marker": MARKERS[self.marker % len(MARKERS)]}
        return options | {"linestyle": (0, (4, 3)) if self.dashed else "-", "linewidth": 1.5, "markersize": 7,
                       "markeredgecolor": PAPER, "markeredgewidth": 0.4}  # fmt: skip


def assign_styles(colours: Mapping[str, int]) -> dict[str, LineStyle]:
    """Assign a style to each name with its given colour; names of one colour get different markers."""
    used: Counter[int] = Counter()
    styles = {}
    for name, colour in colours.items():
        styles[name] = LineStyle(colour, colour + used[colour])
        used[colour] += 1
    return styles


@dataclass(frozen=True)
class PlotSeries:
    """One line of a panel: a method's settings along λ."""

    label: str
    style: LineStyle
    spots: tuple[PlotPoint, ...]


@dataclass(frozen=True)
class PlotPanel:
    """A panel: lines between two axes."""

    name: str  # the judge's name, where there is a panel for each judge
    title: str
    across: str  # the x axis label with its direction
    up: str
    series: tuple[PlotSeries, ...]
    words: str = ""  # shown next to the title
    level: tuple[float, float] | None = None  # the limits of a grey band
    level_words: str = ""
    shows: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # values that the x and y axes always include
    logarithmic: bool = False  # both axes are logarithmic beyond 1

    @property
    def empty(self) -> bool:
        return not any(series.spots for series in self.series)


def panels_png(panels: Sequence[PlotPanel]) -> bytes:
    """Draw panels, at most three a row, with one legend below; panels with equal axis labels share a scale."""
    from matplotlib.figure import Figure

    columns = len(panels) if len(panels) <= 3 else (len(panels) + 1) // 2
    rows = -(-len(panels) // columns)
    size = max(WIDTH * columns / 72, 5.5), HEIGHT * rows / 72
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for n, (axes, panel) in enumerate(zip(grid.flat, panels, strict=False)):
        _draw(axes, panel, panels)
        if n % columns and panels[n - 1].up == panel.up:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
        if n + columns < len(panels) and panels[n + columns].across == panel.across:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
        axes.set_title(escape_math(panel.title), fontsize=10, loc="left")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if handles:
        # inches: the line sample, and each letter
        fit = int(figure.get_figwidth() / (0.5 + 0.075 * max(map(len, labels))))
        columns = max(1, min(len(labels), 5, fit))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
        figure.set_figheight(figure.get_figheight() + 0.41 + 0.19 * -(-len(labels) // columns))
    figure.draw_without_rendering()  # label positions are known from here on
    for axes, panel in zip(grid.flat, panels, strict=False):
        _tag(axes, panel.series, ends=len(panel.series) <= CROWD)
    return png(figure)


def png(figure: Figure) -> bytes:
    """Return the figure as PNG without version or date: equal figures give equal bytes."""
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def panels_svg(panels: Sequence[PlotPanel], name: str) -> list[tuple[PlotPanel, Markup]]:
    """Draw each panel as the content of an <svg>, with the scales of the PNG; its ids begin with `name`.

    The n-th line is in groups with data-line="n". Each of its markers is in a group of class `point` with its label.
    """
    from matplotlib.figure import Figure

    drawn = []
    for n, panel in enumerate(panels, 1):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), frameon=False)
        axes = figure.add_axes((0.15, 0.13, 0.82, 0.85))
        _draw(axes, panel, panels)
        drawn.append((panel, _svg(figure, f"{name}-{n}", panel.series)))
    return drawn


def labelled_svg(panel: PlotPanel, name: str, size: tuple[int, int] = LARGE) -> Markup:
    """Draw a chart of `size` as the content of an <svg>, with a label for each line, joined to its last point.

    The labels are stacked at the right, so that they cover no marker.
    """
    from matplotlib.figure import Figure

    figure, letters = Figure(figsize=(size[0] / 72, size[1] / 72), frameon=False), 11 if size == LARGE else 9.5
    lines = [(series, max(series.spots, key=lambda spot: spot.x)) for series in panel.series if series.spots]
    # points reserved for the labels
    room = 14 + 0.6 * letters * max((len(series.label) for series, _ in lines), default=0)
    axes = figure.add_axes((46 / size[0], 42 / size[1], (size[0] - 46 - room) / size[0], (size[1] - 46) / size[1]))
    _draw(axes, panel, [panel])
    lines.sort(key=lambda line: line[1].y)
    place = axes.transData + axes.transAxes.inverted()
    heights = _apart([float(place.transform((spot.x, spot.y))[1]) for _, spot in lines], 1.7 * letters / size[1])
    for (series, spot), height in zip(lines, heights, strict=True):
        colour = series.style.options["color"]
        axes.annotate(escape_math(series.label), (spot.x, spot.y), xytext=(1.02, height), textcoords="axes fraction",
                      va="center", fontsize=letters, color=colour, annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkB": 5,
                                  "relpos": (0, 0.5)})  # fmt: skip
    return _svg(figure, name, panel.series)


def _apart(heights: Sequence[float], least: float) -> list[float]:
    """Return ascending heights from 0 to 1, at least `least` apart and close to the given ones."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + least) if placed else max(height, 0.0))
    over = placed[-1] - 1 if placed else 0.0
    for n in range(len(placed) - 1, -1, -1):
        limit = 1.0 if n == len(placed) - 1 else placed[n + 1] - least
        placed[n] = min(placed[n], limit) if over > 0 else placed[n]
    return placed


def swatch(style: LineStyle) -> Markup:
    """Draw a line and its marker, 28 × 16, as the content of an <svg>."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(28 / 72, 16 / 72), frameon=False)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.plot([0, 0.5, 1], [0, 0, 0], markevery=[1], **style.options)
    axes.set_xlim(0, 1)
    return _svg(figure, f"swatch-{style.name}")


def escape_math(text: str) -> str:
    """Return `text` with dollar signs escaped, which matplotlib would read as mathematics."""
    return text.replace("$", r"\$")


def _draw(axes: Any, panel: PlotPanel, panels: Sequence[PlotPanel]) -> None:
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
        _line(axes, series, n)


def _line(axes: Any, series: PlotSeries, n: int) -> None:
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


def _tag(axes: Any, series: Sequence[PlotSeries], ends: bool) -> None:
    """Label chosen settings with their λ, and the last setting of each line if `ends`.

    A label takes the first offset at which it covers no marker, seed, bar, ring or other label; without one it is
    omitted.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    marks, unit = [mark for line in series for spot in line.spots for mark in _marks(axes, spot)], axes.figure.dpi / 72
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


def _marks(axes: Any, spot: PlotPoint) -> list[tuple[float, float, float]]:
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


def _svg(figure: Figure, name: str, series: Sequence[PlotSeries] = ()) -> Markup:
    """Return the content of the figure's <svg>, in a form that the page allows.

    The page's policy forbids style attributes, its ids must be unique, and its colours are variables.
    """
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "saywhich"}):
        figure.savefig(out, format="svg")
    drawn = next(e for e in ElementTree.fromstring(out.getvalue()) if e.get("id") == "figure_1")
    return Markup(ElementTree.tostring(_cleaned(drawn, name, series), encoding="unicode"))


def _cleaned(element: Element, name: str, series: Sequence[PlotSeries]) -> Element:
    cleaned = Element(element.tag.rpartition("}")[2])
    cleaned.text = (element.text or "").strip()
    for key, value in element.attrib.items():
        if key == "style":
            for what, _, how in (declaration.partition(": ") for declaration in value.split("; ")):
                # its <path> has the stroke
                if what in SHOWN and not (cleaned.tag == "use" and what.startswith("stroke")):
                    cleaned.set(what, f"var(--{VARIABLES[how]})" if how in VARIABLES else how)
        elif key.endswith("href"):
            cleaned.set("href", f"#{name}-{value[1:]}")
        elif key == "id" and cleaned.tag == "path":
            cleaned.set("id", f"{name}-{value}")
        elif key in ("d", "x", "y") or (key == "transform" and "(-0 " not in value):
            cleaned.set(key, " ".join(re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.4g}", value).split()))
    cleaned.extend(child for each in element if len(child := _cleaned(each, name, series)) or child.tag != "g")
    kind, _, n = element.get("id", "").partition("-")
    if kind == "axis":
        cleaned.set("aria-hidden", "true")
    elif kind in ("line", "points"):
        cleaned.set("data-line", n)
    if kind == "points" and len(cleaned):
        markers = cleaned[-1]
        cleaned.remove(markers)
        for marker, spot in zip(markers, series[int(n)].spots, strict=True):
            point = SubElement(cleaned, "g", {"class": "point", "role": "img", "tabindex": "-1"})
            point.set("aria-label", spot.label)
            SubElement(point, "title").text = spot.label
            place = {"cx": marker.attrib["x"], "cy": marker.attrib["y"]}
            SubElement(point, "circle", {"class": "reach", "r": "9", **place})
            point.append(marker)
    return cleaned
