"""Elements of line plots: points, lines with their styles, panels, and the colours of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The first seven are Okabe & Ito 2008, distinguishable with every common colour blindness. page.css has all of them as
# --c0 … --c11, darker on white and lighter in dark mode.
COLOURS = ("#555555", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#6a51a3", "#9e2a2b", "#7a4a2a",
           "#23318f", "#6b7d00")  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
PAPER, INK, SOFT, RULE = "#ffffff", "#1b1f24", "#59626d", "#d9dee4"  # names in page.css: paper, ink, soft, rule
VARIABLES = {PAPER: "paper", INK: "ink", SOFT: "soft", RULE: "rule"} | {c: f"c{n}" for n, c in enumerate(COLOURS)}


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
