"""Scores of captions: their names and display, their values per image, and their bootstrap over images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.analysis.bootstrap import (
    RESAMPLES,
    compute_bleu_from_counts,
    compute_interval,
    draw_in_blocks,
    resample_means,
)
from pipeline.metrics.registry import METRICS
from saywhich.judging.clip_metrics import CLIP_SCORE, PAC_SCORE


class ScoreKey(NamedTuple):
    """Key of a score: the judge's name, or "" for a score without a judge, and the score's name."""

    judge: str
    name: str


@dataclass(frozen=True)
class ScoreKind:
    """Display of a score: its name, its decimals, and whether a higher value is better (1), worse (−1) or neither."""

    name: str
    digits: int
    better: int = 1
    shown: bool = True  # in tables; files have all scores


RECALLS = {"R@1": 1, "R@5": 5, "R@10": 10}
BACK = "image → text"  # the direction; without it a recall is from text to image
HARD_RECALL, HARD_RECALL_BACK = "R@1 (hard)", f"R@1 (hard) {BACK}"
BY_JUDGE = (
    *(ScoreKind(name, 1) for name in RECALLS),
    *(ScoreKind(f"{name} {BACK}", 1) for name in RECALLS),
    ScoreKind(HARD_RECALL, 1),
    ScoreKind(HARD_RECALL_BACK, 1),
    *(ScoreKind(name, 3) for metric in (CLIP_SCORE, PAC_SCORE) for name in (metric.name, metric.with_references)),
)
BY_REFERENCES = tuple(
    ScoreKind(name, metric.digits, 1 if metric.higher_is_better else -1, name == metric.names[-1])
    for metric in METRICS
    for name in metric.names
)
WORDS, BAD_END, REPETITION, SHARED = (
    "words per caption",
    "without an end, %",
    "with a repetition, %",
    "equal to another image's, %",
)
DISTINCT, VOCABULARY, SELF_BLEU = "distinct captions, %", "distinct words", "Self-BLEU"
CHAIR_I, CHAIR_S = "absent objects, % (CHAIR_i)", "with absent objects, % (CHAIR_s)"
OF_TEXT = (
    ScoreKind(WORDS, 1, 0),
    ScoreKind(BAD_END, 1, -1),
    ScoreKind(REPETITION, 1, -1),
    ScoreKind(SHARED, 1, -1),
    ScoreKind(DISTINCT, 1, 1),
    ScoreKind(VOCABULARY, 0, 0),
    ScoreKind(SELF_BLEU, 3, -1),
    ScoreKind(CHAIR_I, 1, -1),
    ScoreKind(CHAIR_S, 1, -1),
)
KINDS = {kind.name: kind for kind in (*BY_JUDGE, *BY_REFERENCES, *OF_TEXT)}


@dataclass(frozen=True)
class ScoreValues:
    """One score of M images: its value over all, and the parts from which a resample's value is computed.

    `sums` (M,) are an image's sums over its `counts` (M,) values. The score is the ratio of their totals; METEOR of
    a corpus is only close to this ratio. BLEU-n has its counts `bleu` (M, 10) instead, and n is `order`. A score
    without `sums` and `bleu` is a score of the whole set of captions, and has no interval.
    """

    value: float
    sums: np.ndarray | None = None
    counts: np.ndarray | None = None
    bleu: np.ndarray | None = None
    order: int = 0


Scores = Mapping[ScoreKey, ScoreValues]


def average_over(owners: np.ndarray, values: np.ndarray, images: int, mask: np.ndarray | None = None) -> ScoreValues:
    """Return the mean of the captions' `values` (N,) where `mask` (N,) is True; `owners` (N,) are their images."""
    weights = np.ones(len(values)) if mask is None else mask.astype(np.float64)
    sums = np.bincount(owners, values * weights, images)
    counts = np.bincount(owners, weights, images)
    return compute_ratio(sums, counts)


def compute_ratio(sums: np.ndarray, counts: np.ndarray) -> ScoreValues:
    """Return the score Σ sums / Σ counts over images; 0 if Σ counts is 0."""
    value = resample_means(sums[:, None], counts[:, None], np.empty((0, len(sums))))[1]
    return ScoreValues(float(value[0]), sums, counts)


def resample_scores(
    rows: Sequence[Scores], images: int, resamples: int = RESAMPLES
) -> list[dict[ScoreKey, np.ndarray]]:
    """Return each row's scores in every resample of the images, (resamples,) each; all scores share the resamples.

    A score without parts per image is left out. A score that is not the mean of its parts, such as METEOR of a corpus,
    is shifted by the difference. A resample without any value has the mean 0.
    """
    means = [(row, key, values) for row, each in enumerate(rows) for key, values in each.items() if _is_mean(values)]
    bleus = [
        (row, key, values) for row, each in enumerate(rows) for key, values in each.items() if values.bleu is not None
    ]
    resampled_scores: list[dict[ScoreKey, list[np.ndarray]]] = [{} for _ in rows]
    sums = _stack_columns([values.sums for *_, values in means if values.sums is not None], images)
    counts = _stack_columns([values.counts for *_, values in means if values.counts is not None], images)
    for resample_counts in draw_in_blocks(images, resamples):
        resampled_means, full_means = resample_means(sums, counts, resample_counts)
        for column, (row, key, values) in enumerate(means):
            shift = values.value - full_means[column]
            resampled_scores[row].setdefault(key, []).append(resampled_means[:, column] + shift)
        bleu_by_row: dict[int, np.ndarray] = {}  # BLEU-1 … 4 of one row share their counts
        for row, key, values in bleus:
            if row not in bleu_by_row:
                bleu_by_row[row] = compute_bleu_from_counts(resample_counts @ values.bleu)
            resampled_scores[row].setdefault(key, []).append(bleu_by_row[row][:, values.order - 1])
    return [{key: np.concatenate(parts) for key, parts in each.items()} for each in resampled_scores]


def compute_score_interval(resamples: np.ndarray | None) -> tuple[float, float] | None:
    """Return the central 95 % interval of a score's resamples, or None without them."""
    return None if resamples is None else compute_interval(resamples)


def _stack_columns(columns: Sequence[np.ndarray], images: int) -> np.ndarray:
    """Return C columns (images,) as an array (images, C), which may have no column."""
    return np.stack(columns, 1) if columns else np.empty((images, 0))


def _is_mean(values: ScoreValues) -> bool:
    return values.sums is not None and values.counts is not None
