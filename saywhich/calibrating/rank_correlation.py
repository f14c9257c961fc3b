"""Kendall's τ-b and τ-c of ratings and scores, with bootstrap intervals over images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.bootstrap import RESAMPLES, draw_in_blocks, interval

Interval = tuple[float, float]


@dataclass(frozen=True)
class RankCorrelation:
    """τ-b and τ-c over `ratings` ratings, and their central 95 % intervals; None where they are not defined."""

    ratings: int
    tau_b: float
    tau_c: float
    interval_b: Interval | None
    interval_c: Interval | None


def kendall(ratings: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    """Return τ-b and τ-c of N pairs; NaN where all ratings or all scores are equal.

    τ-b is scipy's. τ-c has the same numerator C − D, over N² (m − 1) / 2m for m, the smaller number of distinct values.
    """
    from scipy.stats import kendalltau

    distinct = [np.unique(values, return_counts=True)[1] for values in (ratings, scores)]
    classes = min(map(len, distinct))
    if classes < 2:
        return math.nan, math.nan
    tau_b = float(kendalltau(ratings, scores, variant="b", method="asymptotic").statistic)  # the p-value is not used
    n = len(ratings)
    untied = [n * (n - 1) / 2 - float((counts * (counts - 1) / 2).sum()) for counts in distinct]
    return tau_b, 2 * tau_b * math.sqrt(untied[0] * untied[1]) / (n**2 * (classes - 1) / classes)


def correlate(
    ratings: np.ndarray, scores: np.ndarray, owners: np.ndarray, images: int, resamples: int = RESAMPLES
) -> RankCorrelation:
    """Return the correlation of N `ratings` and `scores` of captions of the images `owners` (N,), of `images`.

    A resample draws images with replacement, and each brings all of its ratings. Ratings whose score is NaN do not
    count.
    """
    there = ~np.isnan(scores)
    ratings, scores, owners = ratings[there], scores[there], owners[there]
    if not len(ratings):
        return RankCorrelation(0, math.nan, math.nan, None, None)
    drawn = np.array([kendall(ratings[rows], scores[rows]) for rows in _resampled_rows(owners, images, resamples)])
    return RankCorrelation(len(ratings), *kendall(ratings, scores), _interval(drawn, 0), _interval(drawn, 1))


def _resampled_rows(owners: np.ndarray, images: int, resamples: int) -> Iterator[np.ndarray]:
    """Yield the rows of each resample; a row stands as often in it as its image was drawn."""
    rows = np.arange(len(owners))
    for block in draw_in_blocks(images, resamples):
        for counts in block.astype(np.int64):
            yield np.repeat(rows, counts[owners])


def _interval(drawn: np.ndarray, column: int) -> Interval | None:
    values = drawn[:, column][~np.isnan(drawn[:, column])] if drawn.size else drawn
    return interval(values) if len(values) else None
