"""The discriminability–naturalness curve: what it shows, and its PNG form (svg.py draws it for the page)."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.reporting.results import JUDGES, Point, Results
from pipeline.reporting.selection import Choice
from pipeline.reporting.tables import number, setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito 2008, told apart with every common colour blindness; the page lightens them in dark mode (page.css).
COLOURS = ("#555555", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B58900", "#56B4E9")
SYMBOLS = {"lambda": "λ", "rho": "ρ"}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")


@dataclass(frozen=True)
class Spot:
    """A setting's place in a panel, in units of the axes."""

    x: float
    y: float
    spread: tuple[float, float] | None  # standard deviations over the seeds along x and y
    seeds: tuple[tuple[float, float], ...]  # one place a seed; empty for one seed
    label: str  # what hovering shows
    tag: str  # λ, or nothing for a method without one
    chosen: bool


@dataclass(frozen=True)
class Series:
    """One line: a method, its settings along λ; `style` picks colour and marker."""

    label: str
    style: int
    spots: tuple[Spot, ...]


@dataclass(frozen=True)
class Panel:
    """R@10 by one judge against one language metric."""

    judge: str
    title: str
    metric: str
    series: tuple[Series, ...]
    human: tuple[float, float] | None  # lowest and highest R@10 of human captions through this judge

    @property
    def empty(self) -> bool:
        return not any(series.spots for series in self.series)


def curve_panels(results: Results, choices: Sequence[Choice], metric: str = "CIDEr") -> list[Panel]:
    """One panel a judge, all on the test split; settings without both numbers are left out."""
    chosen = {id(choice.point) for choice in choices if choice.of > 1}
    lines: dict[str, list[Point]] = {}
    for point in results.points:
        lines.setdefault(_line(point, results), []).append(point)
    panels = []
    for judge, words in JUDGES.items():
        series = tuple(
            Series(label, style, tuple(_spots(points, results, judge, metric, chosen)))
            for style, (label, points) in enumerate(lines.items())
        )
        human = [run.value("test", "human", judge, "text_to_image", "R@10") for run in results.runs]
        known = [value for value in human if value is not None]
        panels.append(Panel(judge, words, metric, series, (min(known), max(known)) if known else None))
    return panels


def curve_png(panels: Sequence[Panel]) -> bytes:
    """The panels side by side; equal input gives equal bytes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(panels), 4.9), dpi=150, layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), sharex=True, sharey=True), panels, strict=True):
        axes.set_title(f"judged by {panel.title}", fontsize=10)
        axes.set_xlabel(f"{panel.metric} (naturalness)")
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if panel.empty:
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color="#666666")
        if panel.human:
            low, high = panel.human
            if high - low >= 0.05:
                axes.axhspan(low, high, color="#888888", alpha=0.18, linewidth=0)
            else:
                axes.axhline(low, color="#777777", linestyle=(0, (5, 3)), linewidth=1)
            axes.annotate("human captions", (0.01, low), xycoords=("axes fraction", "data"), xytext=(0, -3),
                          textcoords="offset points", va="top", fontsize=8, color="#666666")  # fmt: skip
        for series in panel.series:
            _draw(axes, series)
    figure.axes[0].set_ylabel("R@10 (discriminability)")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False, fontsize=9)
    return png(figure)


def png(figure: Figure) -> bytes:
    """The figure as PNG without version or date inside."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _draw(axes: Any, series: Series) -> None:
    from matplotlib.patheffects import withStroke

    colour, marker = COLOURS[series.style % len(COLOURS)], MARKERS[series.style % len(MARKERS)]
    xs, ys = [spot.x for spot in series.spots], [spot.y for spot in series.spots]
    axes.plot(xs, ys, color=colour, marker=marker, markersize=6, linewidth=1.6, label=series.label)
    for n, spot in enumerate(series.spots):
        if spot.spread:
            axes.errorbar(
                spot.x, spot.y, xerr=spot.spread[0], yerr=spot.spread[1], color=colour, linewidth=0.9, capsize=2
            )
        if spot.chosen:
            axes.plot(spot.x, spot.y, "o", markersize=13, markerfacecolor="none", markeredgecolor=colour)
        if spot.tag and (spot.chosen or n == len(series.spots) - 1):
            axes.annotate(f"λ {spot.tag}", (spot.x, spot.y), xytext=(2, 8), textcoords="offset points", fontsize=7,
                          color=colour, path_effects=[withStroke(linewidth=2.5, foreground="white")])  # fmt: skip


def _line(point: Point, results: Results) -> str:
    """The method, and those of its settings besides λ that vary within it."""
    return " ".join([point.method, *(_named(point, key) for key in results.varying(point.method))])


def _named(point: Point, key: str) -> str:
    return f"{SYMBOLS.get(key, key)} {setting(point, key)}"


def _spots(points: Sequence[Point], results: Results, judge: str, metric: str, chosen: set[int]) -> Iterable[Spot]:
    across, up = ("language", metric), (judge, "text_to_image", "R@10")
    for point in points:
        x, y = point.mean("test", *across), point.mean("test", *up)
        if x is None or y is None:
            continue
        dx, dy = point.spread("test", *across), point.spread("test", *up)
        seeds = [(run.value("test", *across), run.value("test", *up)) for run in point.runs]
        several = len(seeds) > 1
        keys = dict.fromkeys(("lambda", "rho", *results.varying(point.method)))
        words = [point.method, *(_named(point, key) for key in keys if key in point.settings)]
        words += [f"{'seeds' if several else 'seed'} {' '.join(str(s) for s in point.seeds if s is not None) or '–'}"]
        words += [f"{metric} {number(x, 3, dx)}", f"R@10 {number(y, 1, dy)}"]
        words += ["chosen on validation"] if id(point) in chosen else []
        yield Spot(
            x=x,
            y=y,
            spread=(dx, dy) if several and dx is not None and dy is not None else None,
            seeds=tuple(seeds) if several else (),  # type: ignore[arg-type]
            label=", ".join(words),
            tag=setting(point, "lambda") if "lambda" in point.settings else "",
            chosen=id(point) in chosen,
        )
