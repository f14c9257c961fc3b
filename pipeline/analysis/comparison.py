"""Comparison of methods on their curves: at equal CIDEr, at equal recall and along ρ, with intervals and p-values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipeline.analysis.bootstrap import RECALLS, Resamples, compute_interval, resample
from pipeline.analysis.judge_titles import Keys, make_recall_keys
from pipeline.analysis.levels import choose_cider_levels, choose_score_levels, find_highest_shared, find_span
from pipeline.analysis.results import CIDER, LANGUAGE, Point, Results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.analysis.tradeoff import TOLERANCE, Curve, build_curves, compute_mixture

REFERENCE = "psst_multinomial"
MAX_SHORT_SHARE = 0.05  # tables mark a curve that ends below a level in a larger share of the resamples


@dataclass(frozen=True)
class Estimate:
    """Number read from a curve."""

    value: float
    interval: tuple[float, float] | None = None  # central 95 % over resamples of the test images
    # only seeds whose curves contain the level; if there are none, seeds whose curves are above it
    by_seed: Mapping[object, float] = field(default_factory=dict)

    @property
    def spread(self) -> float | None:
        """Return the standard deviation over the seeds of `by_seed`; None with fewer than two."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    @property
    def seeds(self) -> int:
        """Return the number of seeds in `by_seed`."""
        return len(self.by_seed)


@dataclass(frozen=True)
class CurveReading:
    """Numbers of a curve at a level; a curve that ends below the level has no nearest setting and no estimate."""

    curve: Curve
    span: tuple[float, float] | None  # the lowest and highest value of the fixed metric on the curve
    nearest: Point | None = None  # the measured setting with the largest weight
    estimates: Mapping[Keys, Estimate] = field(default_factory=dict)
    resampled: Mapping[Keys, np.ndarray] = field(default_factory=dict, compare=False)  # (resamples,) each
    # share of the resamples in which the curve ends below the level, and its end is used
    share_below_level: float = 0.0
    is_lower_bound: bool = False  # the whole curve is above the level: estimates are lower bounds, from its lower end


@dataclass(frozen=True)
class CurveDifference:
    """Difference between a method's number and the reference's, over the same resamples."""

    value: float
    interval: tuple[float, float]
    p: float  # two-sided, Holm-adjusted over the differences at this level
    # ≥ or ≤ if one of the two numbers is a lower bound: the difference is at least, or at most, `value`
    bound: str = ""

    @property
    def clear(self) -> bool:
        """Return whether the interval lies on one side of 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


@dataclass(frozen=True)
class ComparisonSlice:
    """Readings of curves at the same value `level` of `fixed`: CIDEr, or the score in % by the first judge."""

    fixed: str
    level: float
    readings: tuple[CurveReading, ...]
    rule: str = ""  # reason for this level, in words
    reference: Curve | None = None
    differences: Mapping[str, Mapping[str, CurveDifference]] = field(default_factory=dict)  # by curve label and judge


@dataclass(frozen=True)
class Comparison:
    """Comparison of all methods of `results`."""

    results: Results
    at_cider: tuple[ComparisonSlice, ...]
    at_score: tuple[ComparisonSlice, ...]
    along_rho: tuple[ComparisonSlice, ...]  # per method: its curve of each ρ, at the highest CIDEr that all reach
    # levels of CIDEr are shares of this method's CIDEr in every resample; None: they are constants
    control: str | None
    samples: Resamples

    @property
    def resamples(self) -> int:
        """Return the number of resamples of the test images."""
        return self.samples.count

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the notes on the resamples."""
        return self.samples.notes


def compare_methods(results: Results, settings: ReportSettings) -> Comparison:
    """Read every curve of `results` on the test split at the configured levels or at levels that most curves reach.

    The intervals are computed from the captions files. Raises UserError as `resample` does.
    """
    curves, samples, control = build_curves(results), resample(results), results.get_points(settings.control)
    recall_keys = [
        make_recall_keys(judge, name) for judge in results.judges for name in dict.fromkeys((results.score, *RECALLS))
    ]
    score_keys = results.score_keys(results.first_judge.name)

    def compare_at_cider(
        curves: Sequence[Curve], cider: float, rule: str = "", reference: Curve | None = None
    ) -> ComparisonSlice:
        resampled_level = _resample_level(cider, control, samples)
        readings = tuple(
            read_curve(curve, CIDER, score_keys, cider, recall_keys, samples, resampled_level) for curve in curves
        )
        return ComparisonSlice(
            "CIDEr", cider, readings, rule, reference, _compute_differences(results, readings, reference)
        )

    def compare_at_score(level: float) -> ComparisonSlice:
        readings = tuple(read_curve(curve, score_keys, CIDER, level, language_keys, samples) for curve in curves)
        return ComparisonSlice(results.score, level, readings, score_rule)

    reference = _select_reference(results, curves, settings)
    ciders, cider_rule = choose_cider_levels(results, curves, settings, reference)
    scores, score_rule = choose_score_levels(results, curves, settings)
    language_keys = [("language", name) for name in LANGUAGE]
    return Comparison(
        results,
        at_cider=tuple(compare_at_cider(curves, cider, cider_rule, reference) for cider in ciders),
        at_score=tuple(compare_at_score(level) for level in scores),
        along_rho=tuple(
            compare_at_cider(rho_curves, cider)
            for method in results.methods
            for rho_curves, cider in _select_rho_curves(method, curves)
        ),
        control=settings.control if _resample_level(1.0, control, samples) is not None else None,
        samples=samples,
    )


def read_curve(
    curve: Curve,
    fixed: Keys,
    traded: Keys,
    level: float,
    metrics: Sequence[Keys],
    samples: Resamples,
    resampled_level: np.ndarray | None = None,
) -> CurveReading:
    """Read the numbers `metrics` where the curve has the value `level` of `fixed`, which it trades for `traded`.

    `resampled_level` (resamples,) is the level in every resample; None: `level` in all of them.
    """
    span = find_span(curve, fixed)
    points = [p for p in curve.points if p.mean("test", *fixed) is not None and p.mean("test", *traded) is not None]
    if not points:
        return CurveReading(curve, span)
    values = _stack_means(points, fixed)
    weights, reached = compute_mixture(values, _stack_means(points, traded), level)
    if not reached:
        return CurveReading(curve, span)
    per_seed = _find_points_per_seed(points, fixed, traded, level)
    x, y = samples.mean(points, *fixed), samples.mean(points, *traded)
    resampled_weights, short = None, 0.0
    if x is not None and y is not None:
        resampled_weights, reaching = compute_mixture(x, y, level if resampled_level is None else resampled_level)
        short = float(1 - reaching.mean())
    estimates, resampled = {}, {}
    for keys in metrics:
        value = _average_weighted(points, weights, keys)
        if value is None:
            continue
        numbers = samples.mean(points, *keys)
        if resampled_weights is not None and numbers is not None:
            resampled[keys] = (resampled_weights * numbers).sum(-1)
        seeds = {
            seed: mean for seed, mixture in per_seed.items() if (mean := _average_weighted(*mixture, keys)) is not None
        }
        estimates[keys] = Estimate(value, compute_interval(resampled[keys]) if keys in resampled else None, seeds)
    lowest = float(values.min())
    above = level < lowest - TOLERANCE * abs(lowest)
    return CurveReading(curve, span, points[int(weights.argmax())], estimates, resampled, short, above)


def adjust_p_values(p: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple tests; the adjustment (Holm 1979) bounds the family-wise error rate."""
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, n in enumerate(sorted(range(len(p)), key=lambda n: p[n])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[n]))
        adjusted[n] = largest
    return adjusted


def _compute_differences(
    results: Results, readings: Sequence[CurveReading], reference: Curve | None
) -> dict[str, dict[str, CurveDifference]]:
    """Return each reading's score minus the reference's, by curve label and judge.

    Differences that are inconclusive, or that lack resampled scores, are left out.
    """
    base = next((reading for reading in readings if reading.curve is reference), None)
    differences: list[tuple[str, str, float, np.ndarray, str]] = []
    for reading in readings:
        for judge in results.judges:
            keys = results.score_keys(judge)
            if base and reading is not base and keys in reading.resampled and keys in base.resampled:
                value = reading.estimates[keys].value - base.estimates[keys].value
                if (bound := find_bound(value, reading.is_lower_bound, base.is_lower_bound)) is not None:
                    resampled = reading.resampled[keys] - base.resampled[keys]
                    differences.append((reading.curve.label, judge, value, resampled, bound))
    adjusted = adjust_p_values(
        [compute_two_sided_p_value(value, resampled) for _, _, value, resampled, _ in differences]
    )
    by_label: dict[str, dict[str, CurveDifference]] = {}
    for (label, judge, value, resampled, bound), p in zip(differences, adjusted, strict=True):
        by_label.setdefault(label, {})[judge] = CurveDifference(value, compute_interval(resampled), p, bound)
    return by_label


def find_bound(value: float, above: bool, base_above: bool) -> str | None:
    """Return the bound of a difference of numbers that may be lower bounds: "" (exact), ≥, ≤, or None (inconclusive).

    `above` and `base_above` mark the first and the second number as lower bounds. A difference of at least −3
    or at most +3 is inconclusive, since its sign is unknown. A difference of two lower bounds is inconclusive, too.
    """
    if not above and not base_above:
        return ""
    if above and not base_above and value > 0:
        return "≥"
    return "≤" if base_above and not above and value < 0 else None


def compute_two_sided_p_value(value: float, resampled: np.ndarray) -> float:
    """Return the two-sided p-value of `value` under a normal distribution with mean 0.

    The standard deviation is that of the `resampled` values (resamples,). A proportion of a thousand resamples would be
    too coarse for Holm's adjustment.
    """
    deviation = float(resampled.std(ddof=1))
    if deviation < 1e-9:
        return 1.0 if abs(value) < 1e-9 else 0.0
    return math.erfc(abs(value) / deviation / math.sqrt(2))


def _select_reference(results: Results, curves: Sequence[Curve], settings: ReportSettings) -> Curve | None:
    """Return the curve with the selected setting of PSST, or of the first method if there is no PSST.

    The control, the method `pretrained` and frozen speakers are not considered. Return None if no method remains.
    """
    trained = dict.fromkeys(run.method for run in results.runs if run.frozen is None)
    methods = [method for method in trained if method not in (settings.control, "pretrained")]
    method = REFERENCE if REFERENCE in methods else next(iter(methods), "")
    own_curves = [curve for curve in curves if curve.method == method]
    chosen = {choice.method: choice.point for choice in choose_all(results, settings)}.get(method)
    return next((curve for curve in own_curves if chosen in curve.points), next(iter(own_curves), None))


def _select_rho_curves(method: str, curves: Sequence[Curve]) -> Iterator[tuple[list[Curve], float]]:
    """Yield the method's curves by ρ, and the highest CIDEr that all these curves reach.

    Yield nothing if ρ has a single value, if other settings vary as well, or if a curve has no CIDEr.
    """
    rho_curves = [
        curve for curve in curves if curve.method == method and isinstance(curve.settings.get("rho"), int | float)
    ]
    other_settings = {
        tuple(sorted((k, str(v)) for k, v in curve.settings.items() if k != "rho")) for curve in rho_curves
    }
    spans = [span for curve in rho_curves if (span := find_span(curve, CIDER)) is not None]
    if (
        len(rho_curves) > 1
        and len(other_settings) == 1
        and len(spans) == len(rho_curves)
        and (cider := find_highest_shared(spans)) is not None
    ):
        yield sorted(rho_curves, key=lambda curve: curve.settings["rho"]), cider


def _resample_level(cider: float, control: Sequence[Point], samples: Resamples) -> np.ndarray | None:
    """Return the level in every resample (resamples,): a constant share of the control's CIDEr.

    The share is `cider` divided by the control's CIDEr over all images. The control's setting with the highest CIDEr
    counts. Return None if the control's CIDEr is not measured, not positive or not resampled.

    Some images are easier to describe for every method. A resample with many of them shifts all curves. A fixed CIDEr
    would then lie at another position on each curve, or beyond its end.
    """
    measured = [(value, point) for point in control if (value := point.mean("test", *CIDER)) is not None]
    if not measured:
        return None
    value, best = max(measured, key=lambda pair: pair[0])
    resampled = samples.mean([best], *CIDER)
    return None if resampled is None or value <= 0 else cider / value * resampled[:, 0]


def _stack_means(points: Sequence[Point], keys: Keys) -> np.ndarray:
    return np.array([point.mean("test", *keys) for point in points], dtype=np.float64)


def _average_weighted(points: Sequence[Point], weights: np.ndarray, keys: Keys) -> float | None:
    """Return the weighted mean of `keys`; None if a setting with a positive weight lacks the number."""
    terms = [(w, p.mean("test", *keys)) for w, p in zip(weights.tolist(), points, strict=True) if w > 0]
    return None if any(v is None for _, v in terms) else math.fsum(w * v for w, v in terms if v is not None)


def _find_points_per_seed(
    points: Sequence[Point], fixed: Keys, traded: Keys, level: float
) -> dict[object, tuple[list[Point], np.ndarray]]:
    """Return points and weights of each seed whose curve contains `level`, else of seeds whose curve is above it."""
    by_containment: dict[bool, dict[object, tuple[list[Point], np.ndarray]]] = {True: {}, False: {}}
    runs = [run for point in points for run in point.runs]
    for seed in dict.fromkeys(run.settings.get("seed") for run in runs):
        seed_points = [Point((run,)) for run in runs if run.settings.get("seed") == seed]
        values = _stack_means(seed_points, fixed)
        weights, reached = compute_mixture(values, _stack_means(seed_points, traded), level)
        if reached:
            by_containment[bool(values.min() * (1 - TOLERANCE) <= level)][seed] = seed_points, weights
    return by_containment[True] or by_containment[False]
