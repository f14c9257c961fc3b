"""Baseline captions, evaluated with a method's captions, and methods not above the template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.analysis.bootstrap import RECALLS, Resamples, compute_interval
from pipeline.analysis.comparison import Comparison, CurveReading, Estimate
from pipeline.analysis.judge_titles import HARD_RECALL, TEXT, Keys, make_recall_keys
from pipeline.analysis.results import CIDER, Point, Results, Run
from pipeline.analysis.tradeoff import Curve

TEMPLATE, HUMAN = "template", "human"
BASELINE_DESCRIPTIONS = {
    HUMAN: "annotators' captions; from image to caption, the best-ranked caption counts; "
    "the own and the adapted listener are {method}'s",
    TEMPLATE: "the captions of {method} with place, and night, sunset or rain, read from the features by a linear map",
    "oracle": "a sentence written from the facts",
    "random": "annotators' captions of other images",
}


@dataclass(frozen=True)
class MeasuredBaseline:
    """Metrics of baseline captions that were evaluated with the captions of the point `evaluated_with`."""

    name: str
    evaluated_with: Point
    point: Point


def list_measured_baselines(results: Results) -> list[MeasuredBaseline]:
    """Return all measured baselines, in the order of `BASELINE_DESCRIPTIONS`, then other kinds by name.

    Human captions are listed for each point with other baselines. If no point has any, the human captions of the first
    point are listed.
    """
    baseline_names = [(point, names) for point in results.points if (names := _list_baseline_names(point))]
    if not baseline_names:
        baseline_names = [(point, set()) for point in results.points[:1] if any(_select_numbers(point.runs[0], HUMAN))]
    baselines = [
        MeasuredBaseline(name, point, Point(tuple(_make_run(run, name) for run in point.runs)))
        for point, names in baseline_names
        for name in (HUMAN, *names)
    ]
    order = {name: index for index, name in enumerate(BASELINE_DESCRIPTIONS)}
    return sorted(baselines, key=lambda baseline: (order.get(baseline.name, len(order)), baseline.name))


def read_baseline_curves(comparison: Comparison) -> list[CurveReading]:
    """Return every baseline as a curve reading at its own CIDEr, with its recalls by every judge."""
    readings, results = [], comparison.results
    recall_keys = [
        make_recall_keys(j, score) for j in results.judges for score in dict.fromkeys((results.score, *RECALLS))
    ]
    for baseline in list_measured_baselines(results):
        estimates = {}
        for keys in recall_keys:
            if (value := baseline.point.mean("test", *keys)) is not None:
                resampled = comparison.samples.mean([baseline.point], *keys)
                seeds = {run.settings.get("seed"): run.value("test", *keys) or 0.0 for run in baseline.point.runs}
                estimates[keys] = Estimate(
                    value, None if resampled is None else compute_interval(resampled[:, 0]), seeds
                )
        name, point = baseline.name, baseline.point
        cider = point.mean("test", *CIDER)
        label = name if cider is None else f"{name} ({cider:.3f})"
        readings.append(CurveReading(Curve(label, name, {}, (point,)), None, point, estimates))
    return readings


def find_methods_not_above_template(
    results: Results, points: Sequence[Point], template: MeasuredBaseline, samples: Resamples
) -> dict[str, list[str]]:
    """Return for each judge the methods of `points` whose R@1 in the hard gallery is not clearly above the template's.

    A method is clearly above the template if the 95 % interval of the paired difference, over resamples of the test
    images, is above 0. Seeds are averaged. A method without ranks is left out.
    """
    methods_by_judge: dict[str, list[str]] = {}
    for judge in results.judges:
        for point in points:
            resampled = samples.mean((point, template.point), *make_recall_keys(judge, HARD_RECALL))
            if resampled is not None and compute_interval(resampled[:, 0] - resampled[:, 1])[0] <= 0:
                methods_by_judge.setdefault(judge, []).append(point.method)
    return methods_by_judge


def _list_baseline_names(point: Point) -> set[str]:
    return {keys[2] for run in point.runs for keys in run.numbers if keys[1] == "baselines" and not run.frozen}


def _make_run(run: Run, name: str) -> Run:
    """Return the baseline as a run whose only setting is the method's seed, which affects the baseline."""
    settings = {key: value for key, value in run.settings.items() if key == "seed"}
    return replace(
        run, method=name, evaluated_with=run.method, settings=settings, numbers=dict(_select_numbers(run, name))
    )


def _select_numbers(run: Run, name: str) -> Iterator[tuple[Keys, float]]:
    """Yield the run's numbers of the baseline `name`, at the paths where a method has its own numbers."""
    for keys, value in run.numbers.items():
        split, *path = keys
        if name != HUMAN:
            if path[:2] == ["baselines", name]:
                yield (split, *path[2:]), value
        elif path[0] == "human_faithfulness":
            yield (split, "faithfulness", *path[1:]), value
        elif path[0] == "judges" and path[2] == "human" and path[3] in (TEXT, "image_to_text", "galleries"):
            yield (split, *path[:2], *path[3:]), value
