"""Levels at which curves are compared: configured, or chosen where all curves are defined, else where most are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import floor

from pipeline.analysis.judge_titles import Keys
from pipeline.analysis.results import CIDER, Results, compute_means
from pipeline.analysis.selection import ReportSettings
from pipeline.analysis.tradeoff import TOLERANCE, Curve

DEGENERATE_SHARE = 0.5  # a curve is degenerate if all its settings have less than this share of the control's CIDEr


def find_span(curve: Curve, keys: Sequence[str]) -> tuple[float, float] | None:
    """Return the lowest and highest value over the curve's settings, averaged over seeds; None if unmeasured."""
    values = compute_means(curve.points, "test", *keys)
    return (min(values), max(values)) if values else None


def choose_cider_levels(
    results: Results, curves: Sequence[Curve], settings: ReportSettings, reference: Curve | None = None
) -> tuple[tuple[float, ...], str]:
    """Return the CIDEr values at which to compare recalls, and the reason in words.

    The values are the control's own CIDEr and `min_cider_share` of it, if all curves reach them. If no value is common
    to all curves, a value that more than half of them reach is enough. At these values methods are as natural as the
    control, or as natural as the selection of λ requires. Otherwise the values are those of `_choose_quarters`. If no
    range is common to more than half of the curves, the value is the highest below every curve's upper end.

    A curve reaches the values between its ends, both averaged over seeds and for each seed. A curve of one setting does
    not count. A curve whose settings all have less than half of the control's CIDEr does not count, either. No chosen
    value lies above the upper end of the curve `reference`.
    """
    if settings.cider_levels is not None:
        return settings.cider_levels, "Values of CIDEr as set in report.cider_levels."
    measured = compute_means(results.get_points(settings.control), "test", *CIDER)
    degenerate = [
        curve
        for curve in curves
        if measured and (ends := find_span(curve, CIDER)) and ends[1] < DEGENERATE_SHARE * max(measured)
    ]
    spans = _collect_spans([curve for curve in curves if curve not in degenerate], CIDER)
    exclusions = (
        f" Not counted, with less than half of {settings.control}'s CIDEr: {', '.join(c.label for c in degenerate)}."
    )
    exclusions = exclusions if degenerate else ""
    if reference is not None and (reached := _find_covered_range(reference, CIDER)):
        spans = [(min(low, reached[1]), min(high, reached[1])) for low, high in spans]
    needed, needed_words = _count_required(spans)
    if measured:
        control_cider, levels = max(measured), {}
        for share in (1.0, settings.min_cider_share):
            level, tolerance = share * control_cider, TOLERANCE * abs(share * control_cider)
            if sum(low - tolerance <= level <= high + tolerance for low, high in spans) >= needed:
                levels[level] = f"{level:.3f}" + ("" if share == 1 else f" ({100 * share:g}% of that)")
        if levels:
            return tuple(levels), (
                f"Fixed CIDEr: {settings.control} has {control_cider:.3f} on the test split; compared at "
                f"{' and '.join(levels.values())}, which {needed_words} reach.{exclusions}"
            )
    quarters, reason = _choose_quarters(spans, 3, "CIDEr")
    if quarters or (highest := find_highest_shared(spans)) is None:
        return quarters, reason + exclusions
    return (highest,), (
        f"Fixed CIDEr: {highest:.3f}, the lowest of the curves' highest values; no range of values is common to more "
        f"than half of the curves.{exclusions}"
    )


def choose_score_levels(
    results: Results, curves: Sequence[Curve], settings: ReportSettings
) -> tuple[tuple[float, ...], str]:
    """Return the levels (in %) of the first judge's score at which to compare language metrics, and the reason."""
    if settings.score_levels is not None:
        return settings.score_levels, f"Values of {results.score} as set in report.score_levels."
    return _choose_quarters(_collect_spans(curves, results.score_keys(results.first_judge.name)), 0, results.score)


def intersect_spans(spans: Sequence[tuple[float, float]], needed: int) -> tuple[float, float] | None:
    """Return the widest range whose every value is in at least `needed` of `spans`.

    Return None if no such range is wider than 0.
    """
    ends = sorted({end for span in spans for end in span})
    ranges: list[tuple[float, float]] = []
    for low, high in pairwise(ends):
        if sum(a <= low and high <= b for a, b in spans) >= needed:
            if ranges and ranges[-1][1] == low:
                ranges[-1] = ranges[-1][0], high
            else:
                ranges.append((low, high))
    return max(ranges, key=lambda ends: ends[1] - ends[0], default=None)


def find_highest_shared(spans: Sequence[tuple[float, float]], digits: int = 3) -> float | None:
    """Return the lowest of the upper ends of `spans`, rounded down to `digits` decimals; None if there are no spans."""
    return min((floor(high * 10**digits) / 10**digits for _, high in spans), default=None)


def _choose_quarters(spans: Sequence[tuple[float, float]], digits: int, quantity: str) -> tuple[tuple[float, ...], str]:
    """Return the points at three quarters and one quarter of the range that enough curves share, and the reason.

    The points lie inside the range, so that resamples reach them too.
    """
    needed, needed_words = _count_required(spans)
    shared_range = intersect_spans(spans, needed)
    if shared_range is None:
        return (), (
            f"No range of {quantity} is common to more than half of the curves, so none are compared at equal "
            f"{quantity}."
        )
    low, high = shared_range
    values = [low + share * (high - low) for share in (0.75, 0.25)]
    rounded = [round(value, digits) for value in values]
    values = [short if low <= short <= high else value for short, value in zip(rounded, values, strict=True)]
    ends = f"{low:.{max(digits, 1)}f} to {high:.{max(digits, 1)}f}"
    return tuple(dict.fromkeys(values)), (
        f"Fixed {quantity}: three quarters and one quarter up the range that {needed_words} share ({ends})."
    )


def _count_required(spans: Sequence[tuple[float, float]]) -> tuple[int, str]:
    """Return how many of `spans` must contain a value, as a number and in words: all, if they overlap, or over half."""
    if intersect_spans(spans, len(spans)):
        return len(spans), "all curves"
    return len(spans) // 2 + 1, "more than half of the curves, but not all,"


def _collect_spans(curves: Sequence[Curve], keys: Keys) -> list[tuple[float, float]]:
    """Return the spans of the curves that have several settings."""
    spans = [
        ends for curve in curves if len(curve.points) > 1 and (ends := _find_covered_range(curve, keys)) is not None
    ]
    return [(low, high) for low, high in spans if high > low]


def _find_covered_range(curve: Curve, keys: Keys) -> tuple[float, float] | None:
    """Return the range that the curve covers both averaged over seeds and in each seed with all settings."""
    if (averaged := find_span(curve, keys)) is None:
        return None
    by_seed: dict[object, list[float]] = {}
    for run in curve.runs:
        if (value := run.value("test", *keys)) is not None:
            by_seed.setdefault(run.settings.get("seed"), []).append(value)
    complete = [values for values in by_seed.values() if len(values) == len(curve.points)]
    high = min([averaged[1], *map(max, complete)])
    return min(high, max([averaged[0], *map(min, complete)])), high
