"""Kendall's τ-b and τ-c of ratings and scores, with bootstrap intervals over images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.analysis.bootstrap import RESAMPLES, draw_in_blocks, interval

Interval = tuple[float, float]
SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
BLOCK_COUNTS = 2**21  # most counts of ratings at once; bounds the memory


@dataclass(frozen=True)
class RankCorrelation:
    """τ-b and τ-c over `ratings` ratings, and their central 95 % intervals.

    An undefined coefficient is NaN. An interval is None where no resample has a defined coefficient.
    """

    ratings: int
    tau_b: float
    tau_c: float
    interval_b: Interval | None
    interval_c: Interval | None


def kendall(ratings: np.ndarray, scores: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Return τ-b and τ-c of N ratings and their scores (2,), or with `counts` (R, N) those of R resamples (R, 2).

    Rating n and its score stand `counts[r, n]` times in resample r, whose N is the sum of its counts. C pairs of
    ratings are concordant, D discordant, and m is the smaller number of distinct values:

        τ-b = (C − D) / √(pairs with different ratings · pairs with different scores)
        τ-c = 2m (C − D) / (N² (m − 1))

    Both are NaN for m < 2.
    """
    classes, places = (np.unique(values, return_inverse=True)[1] for values in (ratings, scores))
    times = np.ones((1, len(classes))) if counts is None else counts
    difference = _concordant_minus_discordant(classes, places, times)
    sizes = [_class_sizes(ranks, times) for ranks in (classes, places)]
    total = times.sum(1)
    untied = [(total * (total - 1) - (tied * (tied - 1)).sum(1)) / 2 for tied in sizes]
    distinct = np.minimum(*((tied > 0).sum(1) for tied in sizes))
    with np.errstate(divide="ignore", invalid="ignore"):
        tau_b = difference / np.sqrt(untied[0] * untied[1])
        tau_c = 2 * difference * distinct / (total**2 * (distinct - 1))
    found = np.where(distinct[:, None] < 2, np.nan, np.stack([tau_b, tau_c], 1))
    return found[0] if counts is None else found


def _concordant_minus_discordant(classes: np.ndarray, places: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return C − D (R,) of items with ranks `classes` (N,) and `places` (N,); item n stands `times[r, n]` times.

    Each pair of different classes is counted at the highest bit in which they differ. For each bit, items whose higher
    bits agree form a group. Cumulative sums along a group's places count the items with the bit 0 below and above each
    item with the bit 1.
    """
    difference = np.zeros(len(times))
    for bit in range(int(classes.max()).bit_length()):
        order = np.lexsort((places, classes >> (bit + 1)))
        group, place, high = classes[order] >> (bit + 1), places[order], classes[order] >> bit & 1
        number = times[:, order]
        lows = np.pad((number * (1 - high)).cumsum(1), ((0, 0), (1, 0)))
        tied = group * (int(places.max()) + 1) + place
        begin, end = (lows[:, np.searchsorted(group, group, side)] for side in SIDES)
        first, last = (lows[:, np.searchsorted(tied, tied, side)] for side in SIDES)
        difference += (number * high * ((first - begin) - (end - last))).sum(1)
    return difference


def _class_sizes(ranks: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return how many items have each rank (R, distinct ranks)."""
    order = np.argsort(ranks)
    return np.add.reduceat(times[:, order], np.unique(ranks[order], return_index=True)[1], axis=1)


def correlate(
    ratings: np.ndarray, scores: np.ndarray, owners: np.ndarray, images: int, resamples: int = RESAMPLES
) -> RankCorrelation:
    """Return the correlation of N `ratings` and `scores`; `owners` (N,) is each rating's image, below `images`.

    A resample draws images with replacement, and each brings all of its ratings. Ratings whose score is NaN do not
    count, nor do resamples without a defined correlation.
    """
    there = ~np.isnan(scores)
    ratings, scores, owners = ratings[there], scores[there], owners[there]
    if not len(ratings):
        return RankCorrelation(0, math.nan, math.nan, None, None)
    drawn = np.concatenate([kendall(ratings, scores, counts) for counts in _resample_counts(owners, images, resamples)])
    tau_b, tau_c = kendall(ratings, scores).tolist()
    return RankCorrelation(len(ratings), tau_b, tau_c, _interval(drawn[:, 0]), _interval(drawn[:, 1]))


def _resample_counts(owners: np.ndarray, images: int, resamples: int) -> Iterator[np.ndarray]:
    """Yield how often each of N ratings stands in each resample (…, N): as often as its image was drawn."""
    rows = max(1, BLOCK_COUNTS // len(owners))
    for block in draw_in_blocks(images, resamples):
        for first in range(0, len(block), rows):
            yield block[first : first + rows, owners]


def _interval(drawn: np.ndarray) -> Interval | None:
    values = drawn[~np.isnan(drawn)]
    return interval(values) if len(values) else None
