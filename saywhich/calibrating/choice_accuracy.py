"""Accuracy of scores on choices between two captions: the share of pairs in which people's choice scores higher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.bootstrap import RESAMPLES, compute_interval, draw_in_blocks

MEAN = "mean"


@dataclass(frozen=True)
class ChoiceAccuracy:
    """Share of pairs in which people's choice scores higher, in %, by kind of pair, with 95 % intervals over images.

    "mean" is the mean over the kinds. Equal scores count half.
    """

    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]


def compute_choice_accuracy(
    margins: np.ndarray, kinds: Sequence[str], owners: np.ndarray, images: int, resamples: int = RESAMPLES
) -> ChoiceAccuracy:
    """Return the accuracy of a score on N pairs of captions, whose `kinds` (N,) are names such as HC.

    `margins` (N,) are the scores of the captions that people prefer minus the scores of the other captions. `owners`
    (N,) are the indices of the pairs' images, below `images`.
    """
    names = sorted(set(kinds))
    columns = np.array([names.index(kind) for kind in kinds])
    sums, counts = np.zeros((2, images, len(names)))
    np.add.at(sums, (owners, columns), 50.0 * (1 + np.sign(margins)))
    np.add.at(counts, (owners, columns), 1)
    means = sums.sum(0) / counts.sum(0)
    values = dict(zip(names, means.tolist(), strict=True)) | {MEAN: float(means.mean())}
    blocks = [(block @ sums, block @ counts) for block in draw_in_blocks(images, resamples)]
    resampled_sums, resampled_counts = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    shares = np.full_like(resampled_sums, np.nan)  # NaN: no pair of the kind
    np.divide(resampled_sums, resampled_counts, out=shares, where=resampled_counts > 0)
    resampled_shares = [*shares.T, np.nanmean(shares, 1)]
    return ChoiceAccuracy(
        values,
        {name: compute_interval(share[~np.isnan(share)]) for name, share in zip(values, resampled_shares, strict=True)},
    )
