"""Claims that one method is found more often than another, or is more natural, each checked against a run's results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from pipeline.analysis.baselines import baselines
from pipeline.analysis.bootstrap import interval
from pipeline.analysis.compare import Comparison, Reading, bound_of
from pipeline.analysis.judges import Keys, recall_by
from pipeline.analysis.results import CIDER, Point
from pipeline.analysis.selection import Choice


class Claim(BaseModel):
    """Captions of the method `more` are found more often than those of `than`, on the data sets or profiles `data`.

    `than` may be captions without training, too. `at`: each method's setting chosen on validation, or where all have
    an equal CIDEr, or are found as often, the first such value. `score` None: the one that methods are compared by.
    Without a `judge` it is CIDEr that is higher.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    says: str
    data: str | tuple[str, ...]
    more: str
    than: str
    judge: str | None = None
    at: Literal["chosen λ", "equal CIDEr", "equal recall"] = "equal CIDEr"
    score: Literal["R@1 near", "R@1", "R@5", "R@10"] | None = None

    def about(self, name: str | None) -> bool:
        """Whether it is made about this data set or profile."""
        return name in ((self.data,) if isinstance(self.data, str) else self.data)


@dataclass(frozen=True)
class Found:
    """What a run says of a claim: the difference in points, its 95 % interval over test images, and each seed's own."""

    claim: Claim
    at: str  # CIDEr 0.821, or chosen λ
    value: float | None = None
    interval: tuple[float, float] | None = None
    by_seed: Mapping[object, float] = field(default_factory=dict)
    bound: str = ""  # ≥ or ≤: the difference is at least or at most that
    reason: str = ""  # why nothing was found

    @property
    def verdict(self) -> str:
        """holds or fails: the interval is on one side of 0, and so is every seed, of two at least; else open."""
        if self.value is None or self.interval is None:
            return "open"
        low, high = self.interval
        seeds = list(self.by_seed.values())
        if len(seeds) > 1 and low > 0 and min(seeds) > 0 and self.bound != "≤":
            return "holds"
        return "fails" if len(seeds) > 1 and high < 0 and max(seeds) < 0 and self.bound != "≥" else "open"


def check(claim: Claim, comparison: Comparison, choices: Sequence[Choice]) -> Found:
    """The claim against these results; what they do not have is the reason why it stays open."""
    results = comparison.results
    keys = recall_by(claim.judge, claim.score or results.score) if claim.judge else CIDER
    if claim.at == "chosen λ":
        points = {choice.method: choice.point for choice in choices if choice.point}
        points |= {baseline.name: baseline.point for baseline in baselines(results)}
        lacking = [name for name in (claim.more, claim.than) if name not in points]
        if lacking:
            return Found(claim, claim.at, reason=f"{lacking[0]} was not measured")
        return _at_points(claim, points[claim.more], points[claim.than], keys, comparison)
    slices = comparison.at_cider if claim.at == "equal CIDEr" else comparison.at_score
    if not slices:
        return Found(claim, claim.at, reason=f"no {claim.at}")
    slice_ = slices[0]
    chosen = {id(choice.point) for choice in choices if choice.point}
    readings = {r.curve.method: r for r in slice_.readings}
    readings |= {r.curve.method: r for r in slice_.readings if any(id(point) in chosen for point in r.curve.points)}
    natural = claim.at == "equal CIDEr"
    at = f"CIDEr {slice_.level:.3f}" if natural else f"{slice_.fixed} {slice_.level:g}% by {results.first.name}"
    lacking = [name for name in (claim.more, claim.than) if name not in readings or not readings[name].nearest]
    if lacking:
        return Found(claim, at, reason=f"{lacking[0]} has no such {'CIDEr' if natural else slice_.fixed}")
    return _at_level(claim, at, readings[claim.more], readings[claim.than], keys)


def _at_points(claim: Claim, one: Point, other: Point, keys: Keys, comparison: Comparison) -> Found:
    values = [_by_seed(point, keys) for point in (one, other)]
    if not all(values):
        return Found(claim, claim.at, reason=_unmeasured(claim))
    both = comparison.samples.mean((one, other), *keys)
    drawn = None if both is None else both[:, 0] - both[:, 1]
    means = [fmean(each.values()) for each in values]
    return _found(claim, claim.at, means[0] - means[1], drawn, values, "")


def _at_level(claim: Claim, at: str, one: Reading, other: Reading, keys: Keys) -> Found:
    if keys not in one.estimates or keys not in other.estimates:
        return Found(claim, at, reason=_unmeasured(claim))
    value = one.estimates[keys].value - other.estimates[keys].value
    if (bound := bound_of(value, one.above, other.above)) is None:
        return Found(claim, at, reason="a lower bound leaves open which is higher")
    known = keys in one.resampled and keys in other.resampled
    drawn = one.resampled[keys] - other.resampled[keys] if known else None
    return _found(claim, at, value, drawn, [each.estimates[keys].by_seed for each in (one, other)], bound)


def _found(
    claim: Claim, at: str, value: float, drawn: np.ndarray | None, values: Sequence[Mapping[object, float]], bound: str
) -> Found:
    """Seeds are paired; a method with one seed alone is the same for all seeds of the other."""
    one, other = values
    if len(other) == 1:
        other = dict.fromkeys(one, *other.values())
    elif len(one) == 1:
        one = dict.fromkeys(other, *one.values())
    paired = {seed: one[seed] - other[seed] for seed in one if seed in other}
    return Found(claim, at, value, None if drawn is None else interval(drawn), paired, bound)


def _unmeasured(claim: Claim) -> str:
    return f"not judged by {claim.judge}" if claim.judge else "no CIDEr"


def _by_seed(point: Point, keys: Keys) -> dict[object, float]:
    values = {run.settings.get("seed"): run.value("test", *keys) for run in point.runs}
    known = {seed: value for seed, value in values.items() if value is not None}
    return known if len(known) == len(values) else {}
