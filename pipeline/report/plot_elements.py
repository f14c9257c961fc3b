"""Elements of line plots: points, lines with their styles, panels, and the colours of the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Five of the first seven colours come from Okabe and Ito 2008; these remain distinct with common colour blindness.
# The first colour is grey instead of black, and the sixth is a darker yellow, for contrast with white.
# page.css has a variable for each colour, --c0 … --c11: some are darker on white, and all are lighter in dark mode.
COLOURS = ("#555555", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#6a51a3", "#9e2a2b", "#7a4a2a",
           "#23318f", "#6b7d00")  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
PAPER, INK, SOFT, RULE = "#ffffff", "#1b1f24", "#59626d", "#d9dee4"  # names in page.css: paper, ink, soft, rule
VARIABLES = {PAPER: "paper", INK: "ink", SOFT: "soft", RULE: "rule"} | {c: f"c{n}" for n, c in enumerate(COLOURS)}


@dataclass(frozen=True)
class PlotPoint:
    """Point of a panel, usually one setting; coordinates are in units of the axes."""

    x: float
    y: float
    label: str  # text of the hover label
    bars: tuple[float, float, float, float] | None = None  # ends of the error bars: left, right, bottom, top
    seeds: tuple[tuple[float, float], ...] = ()  # (x, y) of each seed; empty for one seed
    tag: str = ""  # curve's setting, such as "λ 0.01"; "" for a point without it
    chosen: bool = False


@dataclass(frozen=True)
class LineStyle:
    """Style of a line; `colour` and `marker` are indices, taken modulo the numbers of COLOURS and MARKERS."""

    colour: int
    marker: int
    dashed: bool = False

    @property
    def name(self) -> str:
        """Return the name of the style, unique among styles."""
        return f"{self.colour}-{self.marker}" + ("-dashed" if self.dashed else "")

    @property
    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of matplotlib's plot."""
        options = {"color": COLOURS[self.colour % len(COLOURS)], "marker": MARKERS[self.marker % len(MARKERS)]}
        return options | {"linestyle": (0, (4, 3)) if self.dashed else "-", "linewidth": 1.5, "markersize": 7,
                       "markeredgecolor": PAPER, "markeredgewidth": 0.4}  # fmt: skip


def assign_styles(colours: Mapping[str, int]) -> dict[str, LineStyle]:
    """Assign a style to each name, from its colour index.

    Names of one colour get different markers, which repeat where a colour has more names than MARKERS.
    """
    counts: Counter[int] = Counter()
    styles = {}
    for name, colour in colours.items():
        styles[name] = LineStyle(colour, colour + counts[colour])
        counts[colour] += 1
    return styles


@dataclass(frozen=True)
class PlotSeries:
    """Line of a panel, usually the settings of a method's curve."""

    label: str
    style: LineStyle
    points: tuple[PlotPoint, ...]


@dataclass(frozen=True)
class PlotPanel:
    """Panel of a figure: lines between two axes."""

    name: str  # the judge's name, where there is a panel for each judge
    title: str
    x_label: str  # usually with an arrow to better or larger values
    y_label: str
    series: tuple[PlotSeries, ...]
    subtitle: str = ""
    band: tuple[float, float] | None = None  # lower and upper limit of a grey horizontal band
    band_label: str = ""
    includes: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())  # values that the x and y axes always include
    logarithmic: bool = False  # both axes are logarithmic beyond 1

    @property
    def empty(self) -> bool:
        """Return whether no series has a point."""
        return not any(series.points for series in self.series)
