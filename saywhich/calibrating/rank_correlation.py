"""Kendall's τ-b and τ-c of ratings and scores, with bootstrap intervals over images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.analysis.bootstrap import RESAMPLES, compute_interval, draw_in_blocks

Interval = tuple[float, float]
SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
BLOCK_COUNTS = 2**21  # largest number of counts in one array; bounds the memory


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


def compute_kendall(ratings: np.ndarray, scores: np.ndarray, counts: np.ndarray | None = None) -> np.ndarray:
    """Return τ-b and τ-c (2,) of N ratings and their scores. `counts` (R, N) gives the result (R, 2) of R resamples.

    Rating n and its score count `counts[r, n]` times in resample r, whose N is the sum of its counts. C and D are the
    numbers of concordant and discordant pairs of ratings, and m is the smaller number of distinct values:

        τ-b = (C − D) / √(pairs with different ratings · pairs with different scores)
        τ-c = 2m (C − D) / (N² (m − 1))

    Both are NaN for m < 2.
    """
    rating_ranks, score_ranks = (np.unique(values, return_inverse=True)[1] for values in (ratings, scores))
    weights = np.ones((1, len(rating_ranks))) if counts is None else counts
    difference = _count_concordant_minus_discordant(rating_ranks, score_ranks, weights)
    sizes = [_count_ranks(ranks, weights) for ranks in (rating_ranks, score_ranks)]
    total = weights.sum(1)
    untied = [(total * (total - 1) - (tied * (tied - 1)).sum(1)) / 2 for tied in sizes]
    distinct = np.minimum(*((tied > 0).sum(1) for tied in sizes))
    with np.errstate(divide="ignore", invalid="ignore"):
        tau_b = difference / np.sqrt(untied[0] * untied[1])
        tau_c = 2 * difference * distinct / (total**2 * (distinct - 1))
    coefficients = np.where(distinct[:, None] < 2, np.nan, np.stack([tau_b, tau_c], 1))
    return coefficients[0] if counts is None else coefficients


def _count_concordant_minus_discordant(
    rating_ranks: np.ndarray, score_ranks: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Return C − D (R,) of N items, where item n counts `weights[r, n]` times; both ranks are (N,).

    Each pair of different rating ranks is counted at the highest bit in which they differ. For each bit, items whose
    higher bits agree form a group. Cumulative sums along a group's score ranks count the items with the bit 0 below and
    above each item with the bit 1.
    """
    difference = np.zeros(len(weights))
    for bit in range(int(rating_ranks.max()).bit_length()):
        order = np.lexsort((score_ranks, rating_ranks >> (bit + 1)))
        group, rank, high = rating_ranks[order] >> (bit + 1), score_ranks[order], rating_ranks[order] >> bit & 1
        counts = weights[:, order]
        lows = np.pad((counts * (1 - high)).cumsum(1), ((0, 0), (1, 0)))
        tied = group * (int(score_ranks.max()) + 1) + rank
        begin, end = (lows[:, np.searchsorted(group, group, side)] for side in SIDES)
        first, last = (lows[:, np.searchsorted(tied, tied, side)] for side in SIDES)
        difference += (counts * high * ((first - begin) - (end - last))).sum(1)
    return difference


def _count_ranks(ranks: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the number of items with each rank in each resample, (R, distinct ranks)."""
    order = np.argsort(ranks)
    return np.add.reduceat(weights[:, order], np.unique(ranks[order], return_index=True)[1], axis=1)


def correlate(
    ratings: np.ndarray, scores: np.ndarray, owners: np.ndarray, images: int, resamples: int = RESAMPLES
) -> RankCorrelation:
    """Return the correlation of N `ratings` and `scores`; `owners` (N,) is each rating's image, below `images`.

    A resample draws images with replacement, and each drawn image brings all of its ratings. Ratings whose score is NaN
    and resamples without a defined correlation do not count.
    """
    scored = ~np.isnan(scores)
    ratings, scores, owners = ratings[scored], scores[scored], owners[scored]
    if not len(ratings):
        return RankCorrelation(0, math.nan, math.nan, None, None)
    draws = np.concatenate(
        [compute_kendall(ratings, scores, counts) for counts in _resample_counts(owners, images, resamples)]
    )
    tau_b, tau_c = compute_kendall(ratings, scores).tolist()
    interval_b, interval_c = (_compute_interval(column) for column in draws.T)
    return RankCorrelation(len(ratings), tau_b, tau_c, interval_b, interval_c)


def _resample_counts(owners: np.ndarray, images: int, resamples: int) -> Iterator[np.ndarray]:
    """Yield blocks (…, N) of the resamples' counts of N ratings; a rating counts as often as its image was drawn."""
    rows = max(1, BLOCK_COUNTS // len(owners))
    for block in draw_in_blocks(images, resamples):
        for first in range(0, len(block), rows):
            yield block[first : first + rows, owners]


def _compute_interval(draws: np.ndarray) -> Interval | None:
    values = draws[~np.isnan(draws)]
    return compute_interval(values) if len(values) else None
