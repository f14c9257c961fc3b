"""What the figures show: recall against naturalness, recall against ρ, and what a listener unlearns about people.

svg.py draws them for the page, png.py as files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.reporting.compared import Comparison
from pipeline.reporting.results import SHORT, SYMBOLS, Point, Results
from pipeline.reporting.selection import Choice
from pipeline.reporting.tables import number, setting
from pipeline.reporting.tradeoff import curves


@dataclass(frozen=True)
class Spot:
    """A setting's place in a panel, in units of the axes."""

    x: float
    y: float
    bars: tuple[float, float, float, float] | None  # where the error bars end: left, right, bottom, top
    seeds: tuple[tuple[float, float], ...]  # one place a seed; empty for one seed
    label: str  # what hovering shows
    tag: str  # "λ 0.01", or nothing for a method without one
    chosen: bool


@dataclass(frozen=True)
class Style:
    """How a line is drawn: numbers of a colour and of a marker."""

    colour: int
    marker: int
    dashed: bool = False


@dataclass(frozen=True)
class Series:
    """One line: a method, its settings along λ."""

    label: str
    style: Style
    spots: tuple[Spot, ...]


@dataclass(frozen=True)
class Panel:
    """Lines between two axes."""

    name: str  # the judge's, where there is a panel a judge
    title: str
    words: str  # what the title does not say
    across: str  # what the x axis measures, and which way is which
    up: str
    series: tuple[Series, ...]
    level: tuple[float, float] | None = None  # a grey band from here to there
    level_words: str = ""

    @property
    def empty(self) -> bool:
        return not any(series.spots for series in self.series)


def styles(results: Results) -> dict[str, Style]:
    """The style of each curve, the same in every figure: a colour a method, a marker a curve.

    A frozen speaker has its method's colour, dashed. A method's own name has the style of its first curve.
    """
    speakers = list(dict.fromkeys(run.speaker for run in results.runs))
    found: dict[str, Style] = {}
    for n, curve in enumerate(curves(results)):
        run = curve.points[0].runs[0]
        style = Style(speakers.index(run.speaker), n, run.frozen is not None)
        found[curve.label] = style
        found.setdefault(curve.method, style)
    return found


def curve_panels(results: Results, choices: Sequence[Choice], metric: str = "CIDEr") -> list[Panel]:
    """R@10 against a language metric, one panel a judge, on the test split.

    A setting without both numbers is left out, and so is a judge who saw nothing (unless none saw anything).
    """
    chosen, style = _chosen(choices), styles(results)
    panels = []
    for judge in results.judges:
        series = tuple(
            Series(
                curve.label,
                style[curve.label],
                # A frozen speaker's captions are its method's: only its own listener is another.
                ()
                if judge != "own" and style[curve.label].dashed
                else tuple(_spots(curve.points, results, judge, metric, chosen)),
            )
            for curve in curves(results)
        )
        human = [run.value("test", "human", judge, "text_to_image", "R@10") for run in results.runs]
        panels.append(
            Panel(judge, SHORT[judge], "", f"{metric}: more natural →", "R@10: found more often →", series,
                  _band(human), "human captions")
        )  # fmt: skip
    return [panel for panel in panels if not panel.empty] or panels


def drift_panel(results: Results, choices: Sequence[Choice]) -> Panel | None:
    """What the method's own listener makes of people's captions against what it makes of its speaker's.

    None where human captions were not judged.
    """
    chosen, style = _chosen(choices), styles(results)
    across, up = ("own", "text_to_image", "R@10"), ("human", "own", "text_to_image", "R@10")
    series = []
    for curve in curves(results):
        spots = []
        for point in curve.points:
            x, y = point.mean("test", *across), point.mean("test", *up)
            if x is None or y is None:
                continue
            words = [f"own captions R@10 {number(x, 1, point.spread('test', *across))}"]
            words += [f"human captions R@10 {number(y, 1, point.spread('test', *up))}"]
            spots.append(_spot(point, results, across, up, words, chosen))
        series.append(Series(curve.label, style[curve.label], tuple(spots)))
    before = [run.value("test", "human", "before", "text_to_image", "R@10") for run in results.runs]
    panel = Panel(
        "drift", "Own listener", "how well it finds images by its speaker's captions, and by people's",
        "R@10 of its speaker's captions →", "R@10 of human captions →", tuple(series), _band(before),
        "before joint training",
    )  # fmt: skip
    return None if panel.empty else panel


def rho_panels(results: Results, comparison: Comparison) -> list[Panel]:
    """R@10 against ρ at one CIDEr, one line a method, by its own listener and by the independent judge.

    Bars are 95 % intervals over the test images. Nothing where no method was measured at several values of ρ.
    """
    style = styles(results)
    panels = []
    for judge in ("own", "judge"):
        lines = []
        for series in comparison.rho:
            label = f"{series.method} at CIDEr {series.cider:.3f}"
            spots = []
            for rho, found in zip(series.rhos, series.judges.get(judge, ()), strict=False):
                if found is None:
                    continue
                words = f"{label}, ρ {rho:g}, R@10 {number(found.value, 1)}"
                words += f" [{number(found.interval[0], 1)}, {number(found.interval[1], 1)}]" if found.interval else ""
                bars = (rho, rho, *found.interval) if found.interval else None
                spots.append(Spot(rho, found.value, bars, (), words, "", False))
            lines.append(Series(label, style[series.method], tuple(spots)))
        across, up = "ρ: share of captions heard as distributions →", "R@10: found more often →"
        panels.append(Panel(judge, SHORT[judge], "", across, up, tuple(lines)))
    return [panel for panel in panels if not panel.empty]


def _chosen(choices: Sequence[Choice]) -> set[int]:
    return {id(choice.point) for choice in choices if choice.of > 1}


def _band(values: Iterable[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def _named(point: Point, key: str) -> str:
    return f"{SYMBOLS.get(key, key)} {setting(point, key)}"


def _spots(points: Sequence[Point], results: Results, judge: str, metric: str, chosen: set[int]) -> Iterable[Spot]:
    across, up = ("language", metric), (judge, "text_to_image", "R@10")
    for point in points:
        x, y = point.mean("test", *across), point.mean("test", *up)
        if x is None or y is None:
            continue
        words = [f"{metric} {number(x, 3, point.spread('test', *across))}"]
        words += [f"R@10 {number(y, 1, point.spread('test', *up))}"]
        yield _spot(point, results, across, up, words, chosen)


def _spot(
    point: Point, results: Results, across: tuple[str, ...], up: tuple[str, ...], values: list[str], chosen: set[int]
) -> Spot:
    """`point` at two numbers of the test split that it has; `values` are these numbers in words."""
    x, y = point.mean("test", *across) or 0.0, point.mean("test", *up) or 0.0
    dx, dy = point.spread("test", *across), point.spread("test", *up)
    seeds = [(run.value("test", *across), run.value("test", *up)) for run in point.runs]
    several = len(seeds) > 1
    dial = results.dial(point.method)
    keys = dict.fromkeys(("lambda", "rho", dial, *results.varying(point.method)))
    words = [point.method, *(_named(point, key) for key in keys if key in point.settings)]
    words += [f"{'seeds' if several else 'seed'} {' '.join(str(s) for s in point.seeds if s is not None) or '–'}"]
    words += [*values, *(["chosen on validation"] if id(point) in chosen else [])]
    return Spot(
        x=x,
        y=y,
        bars=(x - dx, x + dx, y - dy, y + dy) if several and dx is not None and dy is not None else None,
        seeds=tuple(seeds) if several else (),  # type: ignore[arg-type]
        label=", ".join(words),
        tag=_named(point, dial) if dial in point.settings else "",
        chosen=id(point) in chosen,
    )
