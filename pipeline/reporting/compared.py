"""Methods compared on their curves: at equal CIDEr, at equal recall and along ρ, with what is uncertain about it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pipeline.reporting.bootstrap import Keys, Resamples, interval, resample
from pipeline.reporting.levels import CIDER, Level, cider_levels, highest_shared, own, recall_levels, span
from pipeline.reporting.results import LANGUAGE, Point, Results, Run
from pipeline.reporting.selection import ReportSettings, choose_all
from pipeline.reporting.tradeoff import SAME, Curve, curves, mixture

REFERENCE = "psst_multinomial"
SHORT_OFTEN = 0.05  # of the resamples


@dataclass(frozen=True)
class Estimate:
    """A number read from a curve."""

    value: float
    interval: tuple[float, float] | None = None  # 95 %, over resamples of the test images
    spread: float | None = None  # standard deviation over the seeds whose own curves reach the value
    seeds: int = 0  # how many do


@dataclass(frozen=True)
class Reading:
    """A curve at a level; without estimates where it does not come so far."""

    curve: Curve
    reached: bool
    span: tuple[float, float] | None  # the lowest and highest value that the curve has
    estimates: Mapping[Keys, Estimate] = field(default_factory=dict)
    resampled: Mapping[Keys, np.ndarray] = field(default_factory=dict, compare=False)  # (resamples,) each
    nearest: Point | None = None  # the measured setting that weighs most
    short: float = 0.0  # share of the resamples in which the curve ends before the level, and its end stands
    above: bool = False  # the whole curve lies above the level: its lowest setting stands, so numbers are lower bounds


@dataclass(frozen=True)
class Difference:
    """A method's number minus the reference's, over the same resamples."""

    value: float
    interval: tuple[float, float]
    p: float  # two-sided, Holm-adjusted over the differences at this level

    @property
    def clear(self) -> bool:
        """The interval is on one side of 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


@dataclass(frozen=True)
class Slice:
    """All curves at one level."""

    level: Level
    readings: tuple[Reading, ...]
    reference: Curve | None = None
    differences: Mapping[str, Mapping[str, Difference]] = field(default_factory=dict)  # curve's label → judge


@dataclass(frozen=True)
class RhoSeries:
    """R@10 of one method against ρ, at the highest CIDEr to which its curves of every ρ come."""

    method: str
    cider: float
    readings: tuple[Reading, ...]  # one a ρ, from the smallest

    @property
    def rhos(self) -> tuple[float, ...]:
        return tuple(float(reading.curve.settings["rho"]) for reading in self.readings)

    @property
    def judges(self) -> dict[str, tuple[Estimate | None, ...]]:
        """R@10 by each judge, in the order of `rhos`."""
        keys = dict.fromkeys(keys for reading in self.readings for keys in reading.estimates)
        return {key[0]: tuple(reading.estimates.get(key) for reading in self.readings) for key in keys
                if key[-1] == "R@10"}  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """What the curves say of the methods; `judges` by name, in words."""

    at_cider: tuple[Slice, ...]
    at_recall: tuple[Slice, ...]
    rho: tuple[RhoSeries, ...]
    control: str | None  # whose CIDEr the fixed ones are a share of in every resample; None: they are constants
    judges: Mapping[str, str]
    recall: str  # which one is fixed in at_recall
    cider_rule: str
    recall_rule: str
    resamples: int
    notes: tuple[str, ...] = ()


def compare(results: Results, settings: ReportSettings) -> Comparison:
    """Read every curve of `results` on the test split at the levels that `settings` gives or that most curves reach.

    Reads the captions files for the intervals. Raises UserError where one is missing.
    """
    lines = curves(results)
    samples = resample(results)
    judged = [(judge, "text_to_image", recall) for judge in results.judges for recall in ("R@1", "R@5", "R@10")]
    by_cider, cider_rule = cider_levels(results, lines, settings)
    by_recall, recall_rule = recall_levels(lines, settings)
    reference = _reference(results, lines, settings)
    control = results.of(settings.control)
    at_cider = []
    for level in by_cider:
        moving = _moving(level.value, control, samples)
        readings = tuple(read(line, CIDER, own("R@10"), level.value, judged, samples, moving) for line in lines)
        at_cider.append(_with_differences(Slice(level, readings, reference), list(results.judges)))
    language = [("language", name) for name in LANGUAGE]
    at_recall = [
        Slice(level, tuple(read(line, own(settings.recall), CIDER, level.value, language, samples) for line in lines))
        for level in by_recall
    ]
    rho = [
        found
        for method in results.methods
        if (found := _along_rho(method, lines, judged, samples, control)) is not None
    ]
    return Comparison(
        at_cider=tuple(at_cider),
        at_recall=tuple(at_recall),
        rho=tuple(rho),
        control=settings.control if _moving(1.0, control, samples) is not None else None,
        judges=results.judges,
        recall=settings.recall,
        cider_rule=cider_rule,
        recall_rule=recall_rule,
        resamples=samples.count,
        notes=samples.notes,
    )


def read(
    curve: Curve,
    fixed: Keys,
    traded: Keys,
    at: float,
    wanted: Sequence[Keys],
    samples: Resamples,
    moving: np.ndarray | None = None,
) -> Reading:
    """The numbers `wanted` where the curve has the value `at` of `fixed`, for which it gives `traded`.

    `moving` (resamples,) is what `at` itself is in every resample, where it was measured on the same images.
    """
    ends = span(curve, fixed)
    points = [p for p in curve.points if p.mean("test", *fixed) is not None and p.mean("test", *traded) is not None]
    if not points:
        return Reading(curve, False, ends)
    weights, reached = mixture(_means(points, fixed), _means(points, traded), at)
    if not reached:
        return Reading(curve, False, ends)
    per_seed = _per_seed(points, fixed, traded, at)
    x, y = _resampled(points, fixed, samples), _resampled(points, traded, samples)
    mixed, short = None, 0.0
    if x is not None and y is not None:
        mixed, enough = mixture(x, y, at if moving is None else moving)
        short = float(1 - enough.mean())
    estimates, drawn = {}, {}
    for keys in wanted:
        value = _weighted(points, weights, keys)
        if value is None:
            continue
        numbers = _resampled(points, keys, samples)
        if mixed is not None and numbers is not None:
            drawn[keys] = (mixed * numbers).sum(-1)
        seeds = [seed for some, share in per_seed if (seed := _weighted(some, share, keys)) is not None]
        estimates[keys] = Estimate(
            value,
            interval(drawn[keys]) if keys in drawn else None,
            statistics.stdev(seeds) if len(seeds) > 1 else None,
            len(seeds),
        )
    above = ends is not None and at < ends[0] - SAME * abs(ends[0])
    return Reading(curve, True, ends, estimates, drawn, points[int(weights.argmax())], short, above)


def holm(p: Sequence[float]) -> list[float]:
    """p-values adjusted for being several (Holm 1979): the probability of any false alarm stays below the level."""
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, n in enumerate(sorted(range(len(p)), key=lambda n: p[n])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[n]))
        adjusted[n] = largest
    return adjusted


def _with_differences(slice_: Slice, judges: Sequence[str]) -> Slice:
    """The slice with every reading's R@10 minus the reference's."""
    base = next((reading for reading in slice_.readings if reading.curve is slice_.reference), None)
    if base is None:
        return slice_
    found: list[tuple[str, str, float, np.ndarray]] = []
    for reading in slice_.readings:
        for judge in judges:
            keys = (judge, "text_to_image", "R@10")
            if reading is not base and keys in reading.resampled and keys in base.resampled:
                value = reading.estimates[keys].value - base.estimates[keys].value
                found.append((reading.curve.label, judge, value, reading.resampled[keys] - base.resampled[keys]))
    adjusted = holm([_two_sided(value, drawn) for _, _, value, drawn in found])
    differences: dict[str, dict[str, Difference]] = {}
    for (label, judge, value, drawn), p in zip(found, adjusted, strict=True):
        differences.setdefault(label, {})[judge] = Difference(value, interval(drawn), p)
    return Slice(slice_.level, slice_.readings, slice_.reference, differences)


def _two_sided(value: float, drawn: np.ndarray) -> float:
    """Of a normal distribution with the resamples' deviation: counting a thousand resamples is too coarse for Holm."""
    deviation = float(drawn.std(ddof=1))
    if deviation < 1e-9:
        return 1.0 if abs(value) < 1e-9 else 0.0
    return math.erfc(abs(value) / deviation / math.sqrt(2))


def _reference(results: Results, lines: Sequence[Curve], settings: ReportSettings) -> Curve | None:
    """The curve of PSST, else of the first method beside the control, whose setting was chosen on validation."""
    methods = [m for m in results.methods if m not in (settings.control, "pretrained") and not _is_frozen(results, m)]
    method = REFERENCE if REFERENCE in methods else next(iter(methods), None)
    own_lines = [line for line in lines if line.method == method]
    chosen = next((c.point for c in choose_all(results, settings) if c.method == method and c.point is not None), None)
    return next((line for line in own_lines if chosen in line.points), next(iter(own_lines), None))


def _is_frozen(results: Results, method: str) -> bool:
    return results.of(method)[0].runs[0].frozen is not None


def _along_rho(
    method: str, lines: Sequence[Curve], judged: Sequence[Keys], samples: Resamples, control: Sequence[Point]
) -> RhoSeries | None:
    """None where ρ has a single value or other settings vary as well."""
    along = [line for line in lines if line.method == method and isinstance(line.settings.get("rho"), int | float)]
    rest = {tuple(sorted((k, str(v)) for k, v in line.settings.items() if k != "rho")) for line in along}
    spans = [found for line in along if (found := span(line, CIDER)) is not None]
    if len(along) < 2 or len(rest) > 1 or len(spans) < len(along) or (cider := highest_shared(spans)) is None:
        return None
    along.sort(key=lambda line: line.settings["rho"])
    moving = _moving(cider, control, samples)
    return RhoSeries(
        method, cider, tuple(read(line, CIDER, own("R@10"), cider, judged, samples, moving) for line in along)
    )


def _moving(cider: float, control: Sequence[Point], samples: Resamples) -> np.ndarray | None:
    """The same share of the control's CIDEr as `cider` is, in every resample; None without a control.

    Some images are easier to describe for everyone: with them all curves move, and a fixed number would be read at
    another place of each, or beyond its end.
    """
    measured = [(value, point) for point in control if (value := point.mean("test", *CIDER)) is not None]
    if not measured:
        return None
    value, best = max(measured, key=lambda found: found[0])
    drawn = _resampled([best], CIDER, samples)
    return None if drawn is None or value <= 0 else cider / value * drawn[:, 0]


def _means(points: Sequence[Point], keys: Keys) -> np.ndarray:
    return np.array([point.mean("test", *keys) for point in points], dtype=np.float64)


def _weighted(points: Sequence[Point], weights: np.ndarray, keys: Keys) -> float | None:
    """None if a setting that counts lacks the number."""
    terms = [(w, p.mean("test", *keys)) for w, p in zip(weights.tolist(), points, strict=True) if w > 0]
    return None if any(v is None for _, v in terms) else math.fsum(w * v for w, v in terms if v is not None)


def _resampled(points: Sequence[Point], keys: Keys, samples: Resamples) -> np.ndarray | None:
    """(resamples, points), seeds averaged; None if a run lacks it."""
    columns = []
    for point in points:
        drawn = [samples.of(run, *keys) for run in point.runs]
        known = [values for values in drawn if values is not None]
        if len(known) < len(drawn):
            return None
        columns.append(np.mean(known, axis=0))
    return np.stack(columns, axis=-1)


def _per_seed(points: Sequence[Point], fixed: Keys, traded: Keys, at: float) -> list[tuple[list[Point], np.ndarray]]:
    """Each seed's own points and weights, of seeds whose own curve reaches `at`, or else of those that lie above."""
    runs: dict[object, list[Run]] = {}
    for point in points:
        for run in point.runs:
            runs.setdefault(run.settings.get("seed"), []).append(run)
    around, above = [], []
    for some in runs.values():
        alone = [Point((run,)) for run in some]
        values = _means(alone, fixed)
        weights, reached = mixture(values, _means(alone, traded), at)
        if reached:
            (around if values.min() * (1 - SAME) <= at else above).append((alone, weights))
    return around or above
