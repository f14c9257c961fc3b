"""The choice of λ for each method, on the validation split, without the test split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pipeline.analysis.judges import Keys
from pipeline.analysis.results import CIDER, MRR, Point, Results, means
from pipeline.ranges import Each, Natural, Positive, Seed, Share, different


@dataclass(frozen=True)
class ReportSettings:
    """The section `report` of params.yaml: how the report chooses λ, and what it shows."""

    images: Natural = 12  # in the gallery
    seed: Seed = 0  # of the draw of those images
    control: str = "mle"  # the method whose naturalness is the reference
    min_cider_share: Share = 0.95  # of the control's validation CIDEr that a chosen setting must keep
    metric: Literal["CIDEr", "BLEU-4", "METEOR", "ROUGE-L", "SPICE", "SPIDEr"] = "CIDEr"  # on the x axis of the curve
    # methods whose speakers are also shown with a listener that adapted to them
    frozen: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(different)] = ()
    at_cider: Annotated[tuple[Positive, ...], *Each] | None = None  # where recalls are compared; None: by the curves
    at_score: Annotated[tuple[Positive, ...], *Each] | None = None  # where language is, in %; None: by the curves
    # what λ is chosen by (the first judge's) and methods are compared by; None: R@1 near if it is measured, else R@10
    score: Literal["R@1 near", "R@1", "R@5", "R@10"] | None = None


class Basis(StrEnum):
    """Why a point was chosen."""

    MET = "met"  # highest score among those natural enough
    BELOW = "below"  # none natural enough: the highest CIDEr
    NO_CONTROL = "no control"  # nothing to measure naturalness against: the highest score
    UNMEASURED = "unmeasured"  # validation numbers are missing


@dataclass(frozen=True)
class Choice:
    """A method's chosen point; `point` is None if there were several and no validation numbers."""

    method: str
    point: Point | None
    basis: Basis
    of: int = 1  # settings there were to choose from


def naturalness_floor(results: Results, settings: ReportSettings) -> float | None:
    """The validation CIDEr that a chosen point must reach; None if the control was not measured.

    A control that was run with several settings counts with the best of them.
    """
    measured = means(results.of(settings.control), "val", *CIDER)
    return settings.min_cider_share * max(measured) if measured else None


def choose_all(results: Results, settings: ReportSettings) -> list[Choice]:
    """One choice a method, in the order of the results.

    It is the point with the highest validation score by the first judge whose validation CIDEr reaches the floor; if
    none reaches it, the point with the highest validation CIDEr. Ties go to the other number, then to the first. In
    dialogs it is the point with the highest validation MRR.
    """
    if results.of_dialogs:
        return [_best(method, results.of(method)) for method in results.methods]
    floor = naturalness_floor(results, settings)
    return [_choose(method, results.of(method), floor, results.by(results.first.name)) for method in results.methods]


def at_end(results: Results, choice: Choice) -> str:
    """ "lowest of 3" where the chosen λ (of guidance: γ) is an end of the values it was chosen from, else nothing.

    Those values are the ones tried with the chosen point's other settings.
    """
    dial = results.dial(choice.method)
    if choice.point is None or dial not in choice.point.settings:
        return ""
    rest = {**choice.point.settings, dial: None}
    tried = {p.settings[dial] for p in results.of(choice.method) if {**p.settings, dial: None} == rest}
    ends = {min(tried): "lowest", max(tried): "highest"} if len(tried) > 1 else {}
    end = ends.get(choice.point.settings[dial])
    return f"{end} of {len(tried)}" if end else ""


def _choose(method: str, points: Sequence[Point], floor: float | None, score: Keys) -> Choice:
    measured = [
        (found, cider, point)
        for point in points
        if (found := point.mean("val", *score)) is not None and (cider := point.mean("val", *CIDER)) is not None
    ]
    if not measured:
        return Choice(method, points[0] if len(points) == 1 else None, Basis.UNMEASURED, len(points))
    natural = [row for row in measured if floor is None or row[1] >= floor]
    if natural:
        basis = Basis.NO_CONTROL if floor is None else Basis.MET
        return Choice(method, max(natural, key=lambda row: row[:2])[2], basis, len(points))
    return Choice(method, max(measured, key=lambda row: (row[1], row[0]))[2], Basis.BELOW, len(points))


def _best(method: str, points: Sequence[Point]) -> Choice:
    measured = [(found, point) for point in points if (found := point.mean("val", *MRR)) is not None]
    if not measured:
        return Choice(method, points[0] if len(points) == 1 else None, Basis.UNMEASURED, len(points))
    return Choice(method, max(measured, key=lambda row: row[0])[1], Basis.MET, len(points))


def rule(results: Results, settings: ReportSettings) -> str:
    """The rule in words, with its numbers."""
    floor, judge = naturalness_floor(results, settings), results.first.title.lower()
    if floor is None:
        return (
            f"λ is chosen on the validation split. There is no validation CIDEr of the control {settings.control}, so "
            f"each method shows its setting with the highest validation {results.score} ({judge}), whatever its CIDEr."
        )
    return (
        f"λ is chosen on the validation split: the method's setting with the highest {results.score} ({judge}) among "
        f"those whose CIDEr is at least {floor:.3f}, {settings.min_cider_share:.0%} of that of {settings.control}; if "
        "none is, the one with the highest CIDEr, marked *. Seeds are averaged before choosing."
    )
