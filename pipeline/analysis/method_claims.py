"""Claims that one method has a higher recall or CIDEr than another, each checked against the results of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from pipeline.analysis.bootstrap import compute_interval
from pipeline.analysis.comparison import Comparison, CurveReading, find_bound
from pipeline.analysis.judge_titles import Keys, make_recall_keys
from pipeline.analysis.measured_baselines import list_measured_baselines
from pipeline.analysis.results import CIDER, Point
from pipeline.analysis.selection import Choice
from pipeline.metrics.gallery_names import HARD_GALLERY


class MethodClaim(BaseModel):
    """Claim that the method `more` has a higher recall by `judge`, or CIDEr if `judge` is None, than the method `than`.

    The claim is about the data sets or profiles `data`. `at` "chosen λ" compares the settings that validation selects;
    there, `more` and `than` may also name baseline captions. Recalls are also compared at the report's first level of
    equal CIDEr, and CIDEr at its first level of equal recall. `score` None stands for the score by which the
    results compare methods.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    statement: str
    data: str | tuple[str, ...]
    more: str
    than: str
    judge: str | None = None
    at: Literal["chosen λ", "equal CIDEr", "equal recall"] = "equal CIDEr"
    score: Literal["R@1 (hard)", "R@1", "R@5", "R@10"] | None = None

    def applies_to(self, name: str | None) -> bool:
        """Return whether the claim is about the data set or profile `name`."""
        return name in ((self.data,) if isinstance(self.data, str) else self.data)


@dataclass(frozen=True)
class ClaimResult:
    """Result of a claim: the difference, its 95 % interval over test images, and each seed's difference.

    Differences of recalls are in percentage points, those of CIDEr in its own unit.
    """

    claim: MethodClaim
    at: str  # for example "CIDEr 0.821" or "chosen λ"
    value: float | None = None
    interval: tuple[float, float] | None = None
    by_seed: Mapping[object, float] = field(default_factory=dict)
    bound: str = ""  # ≥ or ≤: the difference is at least or at most `value`
    resampled: np.ndarray | None = field(default=None, compare=False, repr=False)  # (resamples,): of the test images
    reason: str = ""  # the reason that there is no value

    @property
    def verdict(self) -> str:
        """Return "holds" if the interval and the differences of all seeds are above 0, "fails" if below 0, else "open".

        One seed, or a bound in the other direction (≤ for holds, ≥ for fails), gives "open".
        """
        if self.value is None or self.interval is None:
            return "open"
        low, high = self.interval
        seeds = list(self.by_seed.values())
        if len(seeds) > 1 and low > 0 and min(seeds) > 0 and self.bound != "≤":
            return "holds"
        return "fails" if len(seeds) > 1 and high < 0 and max(seeds) < 0 and self.bound != "≥" else "open"


def check_claim(claim: MethodClaim, comparison: Comparison, choices: Sequence[Choice]) -> ClaimResult:
    """Check the claim against the results; a claim without a difference stays open, and `reason` explains it.

    Where several methods have baseline captions of one kind, the baseline captions of the claim's method are used.
    """
    results = comparison.results
    keys = make_recall_keys(claim.judge, claim.score or results.score) if claim.judge else CIDER
    if claim.at == "chosen λ":
        points = {choice.method: choice.point for choice in choices if choice.point}
        baselines = list_measured_baselines(results)
        baselines.sort(
            key=lambda baseline: baseline.evaluated_with.method in (claim.more, claim.than)
        )  # the last entry of a name is used
        points |= {baseline.name: baseline.point for baseline in baselines}
        missing = [name for name in (claim.more, claim.than) if name not in points]
        if missing:
            return ClaimResult(claim, claim.at, reason=f"{missing[0]} was not measured")
        return _check_points(claim, points[claim.more], points[claim.than], keys, comparison)
    if (claim.at == "equal CIDEr") != bool(claim.judge):
        reason = "recalls are compared at equal CIDEr, and CIDEr at equal recall; change the claim's `at`"
        return ClaimResult(claim, claim.at, reason=reason)
    slices = comparison.at_cider if claim.at == "equal CIDEr" else comparison.at_score
    if not slices:
        return ClaimResult(claim, claim.at, reason=f"no {claim.at}")
    slice_ = slices[0]
    selected_points = {id(choice.point) for choice in choices if choice.point}
    readings = {r.curve.method: r for r in slice_.readings}
    for reading in slice_.readings:  # the curve with the selected setting represents its method
        if any(id(point) in selected_points for point in reading.curve.points):
            readings[reading.curve.method] = reading
    equal_cider = claim.at == "equal CIDEr"
    at = (
        f"CIDEr {slice_.level:.3f}"
        if equal_cider
        else f"{slice_.fixed} {slice_.level:g}% by {results.first_judge.name}"
    )
    missing = [name for name in (claim.more, claim.than) if name not in readings or not readings[name].nearest]
    if missing:
        return ClaimResult(claim, at, reason=f"{missing[0]} has no result at {at}")
    return _check_level(claim, at, readings[claim.more], readings[claim.than], keys)


def _check_points(claim: MethodClaim, first: Point, second: Point, keys: Keys, comparison: Comparison) -> ClaimResult:
    values = [_read_values_by_seed(point, keys) for point in (first, second)]
    if not all(values):
        return ClaimResult(claim, claim.at, reason=_explain_missing_number(keys))
    numbers = comparison.samples.mean((first, second), *keys)
    resampled = None if numbers is None else numbers[:, 0] - numbers[:, 1]
    means = [fmean(each.values()) for each in values]
    single = [len(point.runs) == 1 for point in (first, second)]
    return _pair_seeds(claim, claim.at, means[0] - means[1], resampled, values, single, "")


def _check_level(claim: MethodClaim, at: str, first: CurveReading, second: CurveReading, keys: Keys) -> ClaimResult:
    if keys not in first.estimates or keys not in second.estimates:
        return ClaimResult(claim, at, reason=_explain_missing_number(keys))
    value = first.estimates[keys].value - second.estimates[keys].value
    if (bound := find_bound(value, first.is_lower_bound, second.is_lower_bound)) is None:
        return ClaimResult(claim, at, reason="a lower bound does not show which number is higher")
    has_resamples = keys in first.resampled and keys in second.resampled
    resampled = first.resampled[keys] - second.resampled[keys] if has_resamples else None
    values = [each.estimates[keys].by_seed for each in (first, second)]
    single = [len({run.settings.get("seed") for run in each.curve.runs}) == 1 for each in (first, second)]
    return _pair_seeds(claim, at, value, resampled, values, single, bound)


def _pair_seeds(
    claim: MethodClaim,
    at: str,
    value: float,
    resampled: np.ndarray | None,
    values: Sequence[Mapping[object, float]],
    single: Sequence[bool],
    bound: str,
) -> ClaimResult:
    """Return a result with a difference per seed.

    `single`: whether each method has one seed only; that seed is then paired with every seed of the other method.
    """
    first, second = values
    if single[1]:
        second = {seed: value for seed in first for value in second.values()}
    elif single[0]:
        first = {seed: value for seed in second for value in first.values()}
    differences = {seed: first[seed] - second[seed] for seed in first if seed in second}
    interval = None if resampled is None else compute_interval(resampled)
    return ClaimResult(claim, at, value, interval, differences, bound, resampled=resampled)


def _explain_missing_number(keys: Keys) -> str:
    """Return the reason that no number at `keys` was found, for example "no R@10 by own"."""
    if keys == CIDER:
        return "no CIDEr"
    _, judge, *path, recall = keys
    return f"no {recall} (hard) by {judge}" if HARD_GALLERY in path else f"no {recall} by {judge}"


def _read_values_by_seed(point: Point, keys: Keys) -> dict[object, float]:
    values = {run.settings.get("seed"): run.value("test", *keys) for run in point.runs}
    known = {seed: value for seed, value in values.items() if value is not None}
    return known if len(known) == len(values) else {}
