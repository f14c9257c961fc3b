"""CLIPScore and PAC-S: weighted cosines of caption and photo, and their harmonic means with the nearest reference."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PROMPT = "A photo depicts "  # before captions and references, as in the published code of both metrics


@dataclass(frozen=True)
class ClipMetric:
    """A published score, `weight` · max(cos, 0) of unit embeddings, and its names without and with references."""

    name: str
    with_references: str
    weight: float

    def score(self, captions: Tensor, images: Tensor) -> Tensor:
        """Return the score (N,) float64 of N captions, from the embeddings (N, H) of captions and of their images."""
        return self.weight * (captions.double() * images.double()).sum(1).clamp(min=0)


CLIP_SCORE = ClipMetric("CLIPScore", "RefCLIPScore", 2.5)  # Hessel et al. 2021
PAC_SCORE = ClipMetric("PAC-S", "RefPAC-S", 2.0)  # Sarto et al. 2023


def average_with_reference(scores: Tensor, cosines: Tensor) -> Tensor:
    """Return the harmonic mean (N,) of `scores` (N,) and max(`cosines`, 0) (N,) with the nearest references."""
    cosines = cosines.clamp(min=0)
    total = scores + cosines
    return torch.where(total > 0, 2 * scores * cosines / total, 0)
