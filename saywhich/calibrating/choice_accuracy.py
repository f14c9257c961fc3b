"""Accuracy of scores on choices between two captions: how often a score prefers the caption that people prefer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.bootstrap import RESAMPLES, draw_in_blocks, interval

MEAN = "mean"


@dataclass(frozen=True)
class ChoiceAccuracy:
    """Share of pairs on which a score prefers people's choice, in %, by kind of pair, with 95 % intervals over images.

    "mean" is the mean over the kinds. Equal scores count half.
    """

    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]


def choice_accuracy(
    margins: np.ndarray, kinds: Sequence[str], owners: np.ndarray, images: int, resamples: int = RESAMPLES
) -> ChoiceAccuracy:
    """Return the accuracy of a score on N pairs of captions of the images `owners` (N,), of `images`.

    `margins` (N,) are the scores of the captions that people prefer minus those of the others.
    """
    names = sorted(set(kinds))
    of = np.array([names.index(kind) for kind in kinds])
    sums, counts = np.zeros((2, images, len(names)))
    np.add.at(sums, (owners, of), 50.0 * (1 + np.sign(margins)))
    np.add.at(counts, (owners, of), 1)
    means = sums.sum(0) / counts.sum(0)
    values = dict(zip(names, means.tolist(), strict=True)) | {MEAN: float(means.mean())}
    blocks = [(drawn @ sums, drawn @ counts) for drawn in draw_in_blocks(images, resamples)]
    again, drawn = (np.concatenate(each) for each in zip(*blocks, strict=True))
    shares = np.divide(again, drawn, out=np.full_like(again, np.nan), where=drawn > 0)  # NaN: no pair of the kind
    every = [*shares.T, np.nanmean(shares, 1)]
    return ChoiceAccuracy(
        values, {name: interval(each[~np.isnan(each)]) for name, each in zip(values, every, strict=True)}
    )
