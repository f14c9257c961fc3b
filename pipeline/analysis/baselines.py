"""Captions without training, as they were measured beside a method's, and which methods find more images than them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.analysis.bootstrap import draw, interval
from pipeline.analysis.captions import read_rows
from pipeline.analysis.judges import TEXT, Keys, recall_by
from pipeline.analysis.results import Point, Results, Run

NEAR = "neighbourhood"  # the gallery of the images that share place, weather and light with the right one
TEMPLATE, PEOPLE = "template", "human"
EXPLAINED = {
    PEOPLE: "people's captions, of which the best counts where an image looks for them",
    TEMPLATE: "the captions of {method} with place, and night, sunset or rain, read from the features by a linear map",
    "oracle": "a sentence written from the facts",
    "random": "people's captions of other images",
}


@dataclass(frozen=True)
class Baseline:
    """Numbers of captions that were measured beside those of the point `beside`."""

    name: str
    beside: Point
    point: Point


def near(judge: str, recall: str = "R@1") -> Keys:
    """The path to a recall by the judge among the images that share place, weather and light."""
    return recall_by(judge, recall, "galleries", NEAR)


def baselines(results: Results) -> list[Baseline]:
    """All that were measured, people's captions among them, in the order of `EXPLAINED`."""
    found = []
    for point in results.points:
        names = {keys[2] for run in point.runs for keys in run.numbers if keys[1] == "baselines" and not run.frozen}
        for name in [PEOPLE, *names] if names else ():
            found.append(Baseline(name, point, Point(tuple(_run(run, name) for run in point.runs))))
    return sorted(found, key=lambda baseline: list(EXPLAINED).index(baseline.name))


def no_better(results: Results, points: Sequence[Point], template: Baseline) -> dict[str, list[str]]:
    """For each judge the methods of `points` whose R@1 among neighbours is not clearly above that of the template.

    Clearly: the 95 % interval of the paired difference, over resamples of the test images, is above 0; seeds are
    averaged. A method without its ranks is left out.
    """
    found: dict[str, list[str]] = {}
    for judge in results.judges:
        bar = _hits(template.beside, judge, f"{template.name}_{NEAR}")
        for point in points:
            hits = _hits(point, judge, NEAR)
            if bar is None or hits is None or len(hits) != len(bar):
                continue
            low, _ = interval(draw(len(hits)) @ (hits - bar))
            if low <= 0:
                found.setdefault(judge, []).append(point.method)
    return found


def _hits(point: Point, judge: str, what: str) -> np.ndarray | None:
    """How often each test image is found first, as a mean over the seeds; None where a run has no such ranks."""
    found = []
    for run in point.runs:
        column = run.column(what, judge)
        filters = [("split", "==", "test")]
        if run.cell is not None:
            filters += [("method", "==", run.speaker), ("cell", "==", run.cell)]
        rows = read_rows(run.captions, ["image", column], filters)
        if column not in rows.column_names or rows[column].null_count:
            return None
        found.append(rows.sort_by("image")[column].to_numpy() <= 1)
    return np.mean(found, axis=0)


def _run(run: Run, name: str) -> Run:
    """The baseline as if it were a run of its own; of the method's settings only the seed says something about it."""
    settings = {key: value for key, value in run.settings.items() if key == "seed"}
    return replace(run, method=name, settings=settings, numbers=dict(_numbers(run, name)))


def _numbers(run: Run, name: str) -> Iterator[tuple[Keys, float]]:
    """The run's numbers of that baseline, at the places where a method has its own."""
    for keys, value in run.numbers.items():
        split, *below = keys
        if name != PEOPLE:
            if below[:2] == ["baselines", name]:
                yield (split, *below[2:]), value
        elif below[0] == "human_faithfulness":
            yield (split, "faithfulness", *below[1:]), value
        elif below[0] == "judges" and below[2] == "human" and below[3] in (TEXT, "image_to_text", "galleries"):
            yield (split, *below[:2], *below[3:]), value
