"""Scores of captions by one judge: recalls in both directions and in hard galleries, and CLIPScore or PAC-S."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline.evaluation.judges import rank_embeddings
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.metrics.retrieval import rank_captions_among
from saywhich.judging.caption_scores import (
    BACK,
    HARD_RECALL,
    HARD_RECALL_BACK,
    RECALLS,
    ScoreKey,
    ScoreValues,
    average_over,
)
from saywhich.judging.clip_metrics import PROMPT, ClipMetric, average_with_reference
from saywhich.judging.photo_vectors import CaptionJudge, encode_captions

PAIRS_AT_ONCE = 2**16


@dataclass(frozen=True)
class CaptionRanks:
    """Ranks of N captions of M images by one judge; 1 is best."""

    among_all: np.ndarray  # (N,)
    among_hard: np.ndarray  # (N,): 0 where the gallery holds no other image
    retrieved: np.ndarray  # (N, 5), or (N, M) of fewer images: the images ranked first


def flatten(captions: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    """Return the captions of M images one after another, N texts, and the image of each, (N,)."""
    texts = [text for each in captions for text in each]
    return texts, np.repeat(np.arange(len(captions)), [len(each) for each in captions])


def judge_row(
    judge: CaptionJudge,
    name: str,
    captions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    images: Tensor,
    galleries: Tensor,
) -> tuple[dict[ScoreKey, ScoreValues], CaptionRanks]:
    """Return the scores by one judge, called `name`, of the captions of M images, and the captions' ranks.

    `images` (M, H) are the judge's embeddings; `galleries` (M, K) are the other images of each hard gallery, padded
    with −1. `references` of an image may be empty. Raises UserError for an image without a caption, and for embeddings
    with NaN or infinity.
    """
    texts, owners = flatten(captions)
    owner_rows = torch.from_numpy(owners)
    vectors = encode_captions(judge, texts)
    result = rank_embeddings(vectors, images, owner_rows, {HARD_GALLERY: galleries} if galleries.shape[1] else {})
    hard_image_ranks = rank_captions_among(vectors, images, owner_rows, galleries).numpy()
    ranks, image_ranks = result.by_caption.numpy(), result.by_image.numpy()
    hard = result.among[HARD_GALLERY].numpy() if galleries.shape[1] else np.zeros_like(ranks)
    all_images, has_neighbours = np.arange(len(images)), (galleries >= 0).any(1).numpy()
    scores = {ScoreKey(name, recall): _average_hits(owners, ranks <= k, len(images)) for recall, k in RECALLS.items()}
    scores |= {
        ScoreKey(name, f"{recall} {BACK}"): _average_hits(all_images, image_ranks <= k, len(images))
        for recall, k in RECALLS.items()
    }
    if has_neighbours.any():
        scores[ScoreKey(name, HARD_RECALL)] = _average_hits(owners, hard == 1, len(images), hard > 0)
        hits = hard_image_ranks == 1
        scores[ScoreKey(name, HARD_RECALL_BACK)] = _average_hits(all_images, hits, len(images), has_neighbours)
    if judge.metric:
        scores |= _compute_clip_scores(judge, judge.metric, name, texts, owners, references, images)
    return scores, CaptionRanks(ranks, hard, result.retrieved.numpy())


def _average_hits(owners: np.ndarray, hits: np.ndarray, images: int, mask: np.ndarray | None = None) -> ScoreValues:
    return average_over(owners, 100.0 * hits, images, mask)


def _compute_clip_scores(
    judge: CaptionJudge,
    metric: ClipMetric,
    name: str,
    texts: Sequence[str],
    owners: np.ndarray,
    references: Sequence[Sequence[str]],
    images: Tensor,
) -> dict[ScoreKey, ScoreValues]:
    vectors = encode_captions(judge, [PROMPT + text for text in texts])
    clip = metric.score(vectors, images[torch.from_numpy(owners)])
    scores = {ScoreKey(name, metric.name): average_over(owners, clip.numpy(), len(images))}
    reference_texts, reference_owners = flatten(references)
    if reference_texts:
        reference_vectors = encode_captions(judge, [PROMPT + text for text in reference_texts])
        nearest, has_reference = _find_nearest_reference(vectors, owners, reference_vectors, reference_owners)
        values = average_with_reference(clip, nearest).numpy()
        scores[ScoreKey(name, metric.with_references)] = average_over(owners, values, len(images), has_reference)
    return scores


def _find_nearest_reference(
    captions: Tensor, owners: np.ndarray, references: Tensor, reference_owners: np.ndarray
) -> tuple[Tensor, np.ndarray]:
    """Return the cosine (N,) of each caption and its image's nearest reference, and whether there is a reference, (N,).

    The cosine is −∞ without a reference. `owners` and `reference_owners` are the images of captions and references,
    ascending.
    """
    first = np.searchsorted(reference_owners, owners, "left")
    counts = np.searchsorted(reference_owners, owners, "right") - first
    pair_captions = np.repeat(np.arange(len(owners)), counts)
    pair_references = np.arange(len(pair_captions)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    nearest = torch.full((len(owners),), -torch.inf, dtype=torch.float64)
    for start in range(0, len(pair_captions), PAIRS_AT_ONCE):
        rows = torch.from_numpy(pair_captions[start : start + PAIRS_AT_ONCE])
        reference_rows = torch.from_numpy(pair_references[start : start + PAIRS_AT_ONCE])
        cosines = (captions[rows].double() * references[reference_rows].double()).sum(1)
        nearest.scatter_reduce_(0, rows, cosines, "amax")
    return nearest, counts > 0
