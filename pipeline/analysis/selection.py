"""Selection of λ for each method on the validation split, without the test split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pipeline.analysis.judge_titles import Keys
from pipeline.analysis.results import CIDER, Point, Results, compute_means
from pipeline.metrics.registry import TableMetric
from pipeline.ranges import Distinct, Natural, Positive, Seed, Share, require_distinct


@dataclass(frozen=True)
class ReportSettings:
    """Section `report` of params.yaml: the selection of λ, and the contents of the report."""

    images: Natural = 12  # number of images in the report's gallery
    seed: Seed = 0  # seed of the choice of those images
    control: str = "mle"  # the method whose naturalness is the reference
    min_cider_share: Share = 0.95  # share of the control's validation CIDEr that a chosen setting must keep
    metric: TableMetric = "CIDEr"  # x axis of the curve
    # methods whose frozen speakers are also shown with a listener adapted to them
    frozen_speakers: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(require_distinct)] = ()
    # levels of recall tables; None: from the curves
    cider_levels: Annotated[tuple[Positive, ...], *Distinct] | None = None
    # levels of language tables, in %; None: from the curves
    score_levels: Annotated[tuple[Positive, ...], *Distinct] | None = None
    # score that selects λ (by the first judge) and compares methods; None: R@1 (hard) if it is measured, else R@10
    score: Literal["R@1 (hard)", "R@1", "R@5", "R@10"] | None = None


class SelectionBasis(StrEnum):
    """Reason for the selection of a point."""

    MET = "met"  # the highest score among points that reach the floor; in `choose_best`, among all points
    BELOW = "below"  # no point reaches the floor: the highest CIDEr
    NO_CONTROL = "no control"  # the control was not measured: the highest score
    UNMEASURED = "unmeasured"  # validation metrics are missing


@dataclass(frozen=True)
class Choice:
    """Selected point of a method; `point` is None if there were several points and no validation metrics."""

    method: str
    point: Point | None
    basis: SelectionBasis
    candidates: int = 1  # number of settings to choose from


def compute_naturalness_floor(results: Results, settings: ReportSettings) -> float | None:
    """Return the validation CIDEr that a selected point must reach; None if the control was not measured.

    If the control has several settings, its highest CIDEr counts.
    """
    measured = compute_means(results.get_points(settings.control), "val", *CIDER)
    return settings.min_cider_share * max(measured) if measured else None


def choose_all(results: Results, settings: ReportSettings) -> list[Choice]:
    """Return one choice per method, in the order of the results.

    The point has the highest validation score by the first judge among points whose validation CIDEr reaches the floor.
    If none reaches it, the point has the highest validation CIDEr. Ties are broken by the other metric, then by order.
    """
    floor = compute_naturalness_floor(results, settings)
    return [
        _choose(method, results.get_points(method), floor, results.score_keys(results.first_judge.name))
        for method in results.methods
    ]


def choose_best(results: Results, metric: Keys) -> list[Choice]:
    """Return one choice per method, in the order of the results: the point with the highest validation `metric`."""
    return [_choose_best(method, results.get_points(method), metric) for method in results.methods]


def describe_grid_end(results: Results, choice: Choice) -> str:
    """Return for example "lowest of 3" if the selected λ is an end of the tried values, else "".

    For methods whose curve runs along another setting (`Results.curve_setting`), its value counts in place of λ. The
    tried values are those with the selected point's other settings. A point without the setting has no value.
    """
    key = results.curve_setting(choice.method)
    if choice.point is None or key not in choice.point.settings:
        return ""
    rest = {**choice.point.settings, key: None}
    points = [point for point in results.get_points(choice.method) if key in point.settings]
    values = {point.settings[key] for point in points if {**point.settings, key: None} == rest}
    ends = {min(values): "lowest", max(values): "highest"} if len(values) > 1 else {}
    end = ends.get(choice.point.settings[key])
    return f"{end} of {len(values)}" if end else ""


def _choose(method: str, points: Sequence[Point], floor: float | None, score: Keys) -> Choice:
    measured = [
        (value, cider, point)
        for point in points
        if (value := point.mean("val", *score)) is not None and (cider := point.mean("val", *CIDER)) is not None
    ]
    if not measured:
        return Choice(method, points[0] if len(points) == 1 else None, SelectionBasis.UNMEASURED, len(points))
    natural = [row for row in measured if floor is None or row[1] >= floor]
    if natural:
        basis = SelectionBasis.NO_CONTROL if floor is None else SelectionBasis.MET
        return Choice(method, max(natural, key=lambda row: row[:2])[2], basis, len(points))
    return Choice(method, max(measured, key=lambda row: (row[1], row[0]))[2], SelectionBasis.BELOW, len(points))


def _choose_best(method: str, points: Sequence[Point], metric: Keys) -> Choice:
    measured = [(value, point) for point in points if (value := point.mean("val", *metric)) is not None]
    if not measured:
        return Choice(method, points[0] if len(points) == 1 else None, SelectionBasis.UNMEASURED, len(points))
    return Choice(method, max(measured, key=lambda row: row[0])[1], SelectionBasis.MET, len(points))


def describe_rule(results: Results, settings: ReportSettings) -> str:
    """Return the selection rule in words, with its numbers."""
    floor, judge = compute_naturalness_floor(results, settings), results.first_judge.title.lower()
    if floor is None:
        return (
            f"λ is chosen on the validation split. There is no validation CIDEr of the control {settings.control}, so "
            f"each method shows its setting with the highest validation {results.score} ({judge}), whatever its CIDEr."
        )
    return (
        f"λ is chosen on the validation split: the method's setting with the highest {results.score} ({judge}) among "
        f"those whose CIDEr is at least {floor:.3f}, {100 * settings.min_cider_share:g}% of the CIDEr of "
        f"{settings.control}. If no setting reaches it, the setting with the highest CIDEr is shown, marked *. Seeds "
        "are averaged before choosing."
    )
