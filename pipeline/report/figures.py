"""Content of the figures: recall against naturalness, recall against ρ, and each listener's drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pipeline.analysis.comparison import Comparison
from pipeline.analysis.judge_titles import PRETRAINED, Keys, make_human_recall_keys
from pipeline.analysis.results import Point, Results, format_named_setting
from pipeline.analysis.selection import Choice
from pipeline.analysis.tradeoff import build_curves
from pipeline.evaluation.judge_names import OWN
from pipeline.report.method_names import assign_method_colours, replace_method_names
from pipeline.report.plot_elements import LineStyle, PlotPanel, PlotPoint, PlotSeries, assign_styles
from pipeline.report.tables import format_number


class Axis(NamedTuple):
    """Metric on an axis."""

    name: str  # in hover labels
    keys: Keys  # in metrics.json
    digits: int = 1  # decimals


def choose_styles(results: Results) -> dict[str, LineStyle]:
    """Return the style of each curve, the same in every figure: its method's colour and a marker.

    A frozen speaker has its method's colour, dashed. A method's own name has the style of its first curve.
    """
    colours, curves = assign_method_colours(run.speaker for run in results.runs), build_curves(results)
    line_styles = assign_styles({curve.label: colours[curve.runs[0].speaker] for curve in curves})
    for curve in curves:
        line_styles[curve.label] = replace(line_styles[curve.label], dashed=curve.runs[0].frozen is not None)
        line_styles.setdefault(curve.method, line_styles[curve.label])
    return line_styles


def build_curve_panels(results: Results, choices: Sequence[Choice], metric: str = "CIDEr") -> list[PlotPanel]:
    """Return panels of the score against a language metric on the test split, one per judge.

    A setting that lacks a value is omitted. A judge without any remaining setting is omitted, unless no
    judge has a setting.
    """
    x = Axis(metric, ("language", metric), 3)
    panels = [
        PlotPanel(
            name=judge.name,
            title=judge.title,
            x_label=f"{metric}: more natural →",
            y_label=f"{results.score}: higher recall →",
            # a frozen speaker has the captions of its method; only its own listener differs
            series=_make_series(
                results,
                choices,
                x,
                Axis(results.score, results.score_keys(judge.name)),
                include_frozen=judge.name == OWN,
            ),
            band=_find_band(results, make_human_recall_keys(judge.name, results.score)),
            band_label="human captions",
        )
        for judge in results.judges.values()
    ]
    return [panel for panel in panels if not panel.empty] or panels


def build_drift_panel(results: Results, choices: Sequence[Choice]) -> PlotPanel | None:
    """Return a panel of each own listener's recall on human captions against its recall on its speaker's captions.

    Returns None where human captions were not judged, or where there is no own listener.
    """
    score = results.score
    x = Axis(f"own captions {score}", results.score_keys(OWN))
    y = Axis(f"human captions {score}", make_human_recall_keys(OWN, score))
    panel = PlotPanel(
        name="drift",
        title="Own listener",
        subtitle="recall on its speaker's captions and on human captions",
        x_label=f"{score} of its speaker's captions →",
        y_label=f"{score} of human captions →",
        series=_make_series(results, choices, x, y),
        band=_find_band(results, make_human_recall_keys(PRETRAINED, score)),
        band_label="before joint training",
    )
    return None if panel.empty else panel


def build_rho_panels(results: Results, comparison: Comparison) -> list[PlotPanel]:
    """Return panels of the score against ρ, by the first judge and by the last, a line per method at its own CIDEr.

    Bars are 95 % intervals over the test images. Returns [] where no method has curves at more than one ρ that
    are equal in all other settings.
    """
    styles, panels = choose_styles(results), []
    for judge in results.first_and_last_judge:
        lines = []
        for slice_ in comparison.along_rho:
            method = slice_.readings[0].curve.method
            label, points = f"{replace_method_names(method)} at CIDEr {slice_.level:.3f}", []
            for reading in slice_.readings:
                if (estimate := reading.estimates.get(results.score_keys(judge))) is not None:
                    rho, interval = float(reading.curve.settings["rho"]), estimate.interval
                    text = f"{label}, ρ {rho:g}, {results.score} "
                    text += f"{'at least ' if reading.is_lower_bound else ''}{format_number(estimate.value, 1)}"
                    text += f" [{format_number(interval[0], 1)}, {format_number(interval[1], 1)}]" if interval else ""
                    bars = (rho, rho, *interval) if interval else None
                    points.append(PlotPoint(rho, estimate.value, text, bars=bars))
            lines.append(PlotSeries(label, styles[method], tuple(points)))
        x_label, y_label = "ρ: share passed as distributions →", f"{results.score}: higher recall →"
        panels.append(PlotPanel(judge, results.judges[judge].title, x_label, y_label, tuple(lines)))
    return [panel for panel in panels if not panel.empty]


def _make_series(
    results: Results, choices: Sequence[Choice], x_axis: Axis, y_axis: Axis, include_frozen: bool = True
) -> tuple[PlotSeries, ...]:
    """Return a line per curve, with a point per setting that has both values.

    The lines of frozen speakers have points only with `include_frozen`.
    """
    styles, chosen = choose_styles(results), {id(choice.point) for choice in choices if choice.candidates > 1}

    def plot_point(point: Point) -> PlotPoint | None:
        x, y = point.mean("test", *x_axis.keys), point.mean("test", *y_axis.keys)
        if x is None or y is None:
            return None
        dx, dy = point.spread("test", *x_axis.keys), point.spread("test", *y_axis.keys)
        multiple_seeds, curve_setting = len(point.runs) > 1, results.curve_setting(point.method)
        names = dict.fromkeys(("lambda", "rho", curve_setting, *results.varying_settings(point.method)))
        seeds = " ".join(str(seed) for seed in point.seeds if seed is not None) or "–"
        parts = [
            replace_method_names(point.method),
            *(format_named_setting(point, name) for name in names if name in point.settings),
        ]
        parts += [f"{'seeds' if multiple_seeds else 'seed'} {seeds}"]
        parts += [
            f"{x_axis.name} {format_number(x, x_axis.digits, dx)}",
            f"{y_axis.name} {format_number(y, y_axis.digits, dy)}",
        ]
        seed_points = [(run.value("test", *x_axis.keys), run.value("test", *y_axis.keys)) for run in point.runs]
        return PlotPoint(
            x=x,
            y=y,
            label=", ".join([*parts, *(["chosen on validation"] if id(point) in chosen else [])]),
            bars=(x - dx, x + dx, y - dy, y + dy) if dx is not None and dy is not None else None,
            seeds=tuple(seed_points) if multiple_seeds else (),  # type: ignore[arg-type]
            tag=format_named_setting(point, curve_setting) if curve_setting in point.settings else "",
            chosen=id(point) in chosen,
        )

    points_by_label = {
        curve.label: curve.points if include_frozen or not styles[curve.label].dashed else ()
        for curve in build_curves(results)
    }
    return tuple(
        PlotSeries(replace_method_names(label), styles[label], tuple(filter(None, map(plot_point, points))))
        for label, points in points_by_label.items()
    )


def _find_band(results: Results, keys: Keys) -> tuple[float, float] | None:
    """Return the smallest and the largest value of the runs at `keys`; None if there is no value."""
    values = results.values(*keys)
    return (min(values), max(values)) if values else None
