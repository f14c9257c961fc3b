"""Panels in pixels, for the page's template to draw: one scale for all, so that judges can be compared by eye."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.reporting.figures import Panel, Spot, Style

WIDTH, HEIGHT = 380, 380
LEFT, RIGHT, TOP, BOTTOM = 42, 12, 12, 40
COLOURS = 9  # --c0 … --c8 of page.css, in the order of png.COLOURS
MARKERS = (  # paths around (0, 0), in the order of png.MARKERS
    "M4.5 0A4.5 4.5 0 1 1 -4.5 0A4.5 4.5 0 1 1 4.5 0Z",
    "M-4 -4H4V4H-4Z",
    "M0 -5L4.8 4H-4.8Z",
    "M0 -5.5L5.5 0L0 5.5L-5.5 0Z",
    "M0 5L4.8 -4H-4.8Z",
    "M-1.7 -5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",
    "M-4.6 -2.4L-2.4 -4.6L0 -2.2L2.4 -4.6L4.6 -2.4L2.2 0L4.6 2.4L2.4 4.6L0 2.2L-2.4 4.6L-4.6 2.4L-2.2 0Z",
    "M-5 0L4 -4.8V4.8Z",
)


@dataclass(frozen=True)
class Axis:
    """A linear scale: `low` … `high` onto the pixels `start` … `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...]  # pixel and text

    def pixel(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)


@dataclass(frozen=True)
class Mark:
    """A spot in pixels."""

    x: float
    y: float
    bars: tuple[float, float, float, float] | None  # left, right, top, bottom ends of the error bars
    seeds: tuple[tuple[float, float], ...]
    spot: Spot


@dataclass(frozen=True)
class Look:
    """A style as the template writes it: a class of page.css and the marker's path."""

    name: str
    marker: str


@dataclass(frozen=True)
class Line:
    label: str
    look: Look
    path: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Drawing:
    """A panel that the template can write down as it stands."""

    panel: Panel
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    level: tuple[float, float] | None  # top and bottom pixel of the grey band


def drawings(panels: Sequence[Panel]) -> list[Drawing]:
    """Lay out the panels of one figure."""
    spots = [spot for panel in panels for series in panel.series for spot in series.spots]
    xs = [x for spot in spots for x in (spot.x, *(spot.bars or ())[:2], *(seed[0] for seed in spot.seeds))]
    ys = [y for spot in spots for y in (spot.y, *(spot.bars or ())[2:], *(seed[1] for seed in spot.seeds))]
    ys += [value for panel in panels if panel.level for value in panel.level]
    x, y = _axis(xs, LEFT, WIDTH - RIGHT), _axis(ys, HEIGHT - BOTTOM, TOP)
    return [
        Drawing(
            panel=panel,
            x=x,
            y=y,
            lines=tuple(
                Line(
                    label=series.label,
                    look=look(series.style),
                    path=" ".join(f"{x.pixel(spot.x):g},{y.pixel(spot.y):g}" for spot in series.spots),
                    marks=tuple(_mark(spot, x, y) for spot in series.spots),
                )
                for series in panel.series
            ),
            level=(y.pixel(panel.level[1]), y.pixel(panel.level[0])) if panel.level else None,
        )
        for panel in panels
    ]


def look(style: Style) -> Look:
    """Colours and markers start again where there are more lines."""
    name = f"s{style.colour % COLOURS}" + (" dashed" if style.dashed else "")
    return Look(name, MARKERS[style.marker % len(MARKERS)])


def _mark(spot: Spot, x: Axis, y: Axis) -> Mark:
    bars = None
    if spot.bars:
        left, right, below, above = spot.bars
        bars = (x.pixel(left), x.pixel(right), y.pixel(above), y.pixel(below))
    return Mark(x.pixel(spot.x), y.pixel(spot.y), bars, tuple((x.pixel(a), y.pixel(b)) for a, b in spot.seeds), spot)


def _axis(values: Sequence[float], start: float, end: float) -> Axis:
    """A scale with a margin of 6 % round `values` and ticks at round numbers."""
    from matplotlib.ticker import MaxNLocator

    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - margin, high + margin
    empty = Axis(low, high, start, end, ())
    if not values:
        return empty
    ticks = [t for t in MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high) if low <= t <= high]
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    digits = next((d for d in range(6) if abs(round(step, d) - step) < 1e-9), 6)
    return Axis(low, high, start, end, tuple((empty.pixel(t), f"{t:.{digits}f}") for t in ticks))
