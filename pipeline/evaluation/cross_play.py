"""Cross-play: every listener ranks images by every speaker's captions, to separate speaker from listener effects."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from pipeline.evaluation.judges import Judge, JudgedCaptions
from pipeline.metrics.retrieval import compute_recall, rank_gallery


def compute_cross_play(
    captions: Mapping[str, JudgedCaptions], judges: Mapping[str, Judge], gallery: Tensor
) -> dict[str, dict[str, float]]:
    """Return R@10 from text to image, by speaker and then by judge.

    Each speaker has one caption of each image of `gallery` (M,).
    """
    matrix: dict[str, dict[str, float]] = {name: {} for name in captions}
    for listener, judge in judges.items():
        for speaker, speaker_captions in captions.items():
            texts, images = judge.embed(speaker_captions, gallery)
            rows = torch.arange(len(gallery), device=images.device)
            matrix[speaker][listener] = compute_recall(rank_gallery(texts, images, rows).by_caption)["R@10"]
    return matrix
