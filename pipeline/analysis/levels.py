"""The values at which curves are compared: given, or chosen where all curves are defined, else where most are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import floor

from pipeline.analysis.judges import Keys
from pipeline.analysis.results import CIDER, Results, means
from pipeline.analysis.selection import ReportSettings
from pipeline.analysis.tradeoff import SAME, Curve

LOST = 0.5  # of the control's CIDEr: what has less at every setting writes no captions any more


def span(curve: Curve, keys: Sequence[str]) -> tuple[float, float] | None:
    """The lowest and the highest value that the curve's settings have (seeds averaged); None if it was not measured."""
    values = means(curve.points, "test", *keys)
    return (min(values), max(values)) if values else None


def cider_levels(
    results: Results, curves: Sequence[Curve], settings: ReportSettings, reference: Curve | None = None
) -> tuple[tuple[float, ...], str]:
    """Values of CIDEr at which to compare recalls, and the reason in words.

    The control's own CIDEr and `min_cider_share` of it, each where all curves reach it (or more than half, if there is
    no value that all reach): there the methods are as natural as the control, or as much less as the choice of λ
    allows. Else `_quarters`, or where more than half have nothing in common the highest value that no curve ends
    before. A curve reaches what lies between its ends, with seeds averaged and in each of them; a method with one
    setting has no curve, and one that never has half of the control's CIDEr does not count. The curve `reference` ends
    before none of the values.
    """
    if settings.at_cider is not None:
        return settings.at_cider, "Values of CIDEr as set in report.at_cider."
    measured = means(results.of(settings.control), "test", *CIDER)
    lost = [curve for curve in curves if measured and (ends := span(curve, CIDER)) and ends[1] < LOST * max(measured)]
    spans = _spans([curve for curve in curves if curve not in lost], CIDER)
    aside = f" Not counted, with less than half of {settings.control}'s CIDEr: {', '.join(c.label for c in lost)}."
    aside = aside if lost else ""
    if reference is not None and (reached := _steady(reference, CIDER)):
        spans = [(min(low, reached[1]), min(high, reached[1])) for low, high in spans]
    needed, who = _most(spans)
    if measured:
        most, found = max(measured), {}
        for share in (1.0, settings.min_cider_share):
            level, room = share * most, SAME * abs(share * most)
            if sum(low - room <= level <= high + room for low, high in spans) >= needed:
                found[level] = f"{level:.3f}" + ("" if share == 1 else f" ({share:.0%} of that)")
        if found:
            return tuple(found), (
                f"Fixed CIDEr: {settings.control} has {most:.3f} on the test split; compared at "
                f"{' and '.join(found.values())}, which {who} reach.{aside}"
            )
    inside, words = _quarters(spans, 3, "CIDEr")
    if inside or (highest := highest_shared(spans)) is None:
        return inside, words + aside
    return (highest,), (
        f"Fixed CIDEr: {highest:.3f}, the highest that all curves reach; no value is between the ends of more than "
        f"half.{aside}"
    )


def score_levels(results: Results, curves: Sequence[Curve], settings: ReportSettings) -> tuple[tuple[float, ...], str]:
    """Values of the first judge's score (in %) at which to compare language metrics, and the reason in words."""
    if settings.at_score is not None:
        return settings.at_score, f"Values of {results.score} as set in report.at_score."
    return _quarters(_spans(curves, results.by(results.first.name)), 0, results.score)


def shared(spans: Sequence[tuple[float, float]], needed: int) -> tuple[float, float] | None:
    """The widest range whose every value is in at least `needed` of `spans`; None if there is none."""
    ends = sorted({end for span in spans for end in span})
    ranges: list[tuple[float, float]] = []
    for low, high in pairwise(ends):
        if sum(a <= low and high <= b for a, b in spans) >= needed:
            if ranges and ranges[-1][1] == low:
                ranges[-1] = ranges[-1][0], high
            else:
                ranges.append((low, high))
    return max(ranges, key=lambda ends: ends[1] - ends[0], default=None)


def highest_shared(spans: Sequence[tuple[float, float]], digits: int = 3) -> float | None:
    """The highest value that all `spans` reach, rounded down; None if there are no spans."""
    return min((floor(high * 10**digits) / 10**digits for _, high in spans), default=None)


def _quarters(spans: Sequence[tuple[float, float]], digits: int, what: str) -> tuple[tuple[float, ...], str]:
    """Three quarters and one quarter up the range that `_most` share: inside, so that resamples reach them too."""
    needed, who = _most(spans)
    both = shared(spans, needed)
    if both is None:
        words = f"No value of {what} is reached by more than half of the curves, so none are compared at equal {what}."
        return (), words
    low, high = both
    values = [low + share * (high - low) for share in (0.75, 0.25)]
    rounded = [round(value, digits) for value in values]
    values = [near if low <= near <= high else value for near, value in zip(rounded, values, strict=True)]
    where = f"{low:.{max(digits, 1)}f} to {high:.{max(digits, 1)}f}"
    return tuple(dict.fromkeys(values)), (
        f"Fixed {what}: three quarters and one quarter up the range that {who} share ({where})."
    )


def _most(spans: Sequence[tuple[float, float]]) -> tuple[int, str]:
    """How many of `spans` have to have a value: all, if they have one in common, else more than half; and in words."""
    if shared(spans, len(spans)):
        return len(spans), "all curves"
    return len(spans) // 2 + 1, "more than half of the curves, but not all,"


def _spans(curves: Sequence[Curve], keys: Keys) -> list[tuple[float, float]]:
    """Those of the curves that have several settings."""
    spans = [found for curve in curves if len(curve.points) > 1 and (found := _steady(curve, keys)) is not None]
    return [(low, high) for low, high in spans if high > low]


def _steady(curve: Curve, keys: Keys) -> tuple[float, float] | None:
    """The range that the curve has with seeds averaged and in each seed that has all its settings."""
    if (averaged := span(curve, keys)) is None:
        return None
    alone: dict[object, list[float]] = {}
    for run in curve.runs:
        if (value := run.value("test", *keys)) is not None:
            alone.setdefault(run.settings.get("seed"), []).append(value)
    whole = [values for values in alone.values() if len(values) == len(curve.points)]
    high = min([averaged[1], *map(max, whole)])
    return min(high, max([averaged[0], *map(min, whole)])), high
