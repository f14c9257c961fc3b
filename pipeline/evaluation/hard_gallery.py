"""Hard galleries: for each image, the images that are similar by facts, by features or by a retriever."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from pipeline.metrics.retrieval import find_similar_distractors

HardGallery = Callable[[np.ndarray], Tensor]
"""Function of images (M,), rows of the prepared data; returns indices (M, K) of similar images, padded with −1."""


def build_vector_gallery(embed: Callable[[Tensor], Tensor], images: int) -> HardGallery:
    """Return the hard gallery of each image's nearest images by the vectors (M, D) of `embed`.

    With the image itself, a gallery has at most `images` images; the indices leave the image out.
    `find_similar_distractors` defines similarity.
    """

    def find_similar(rows: np.ndarray) -> Tensor:
        return find_similar_distractors(embed(torch.from_numpy(rows)).cpu(), min(images, len(rows)) - 1)

    return find_similar


def find_galleries_by_key(keys: Sequence[Hashable]) -> Tensor:
    """Return for each of M images the other images of equal key, int64 (M, K), padded with −1."""
    members: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    largest = max(map(len, members.values()), default=1)
    galleries = torch.full((len(keys), largest - 1), -1)
    for indices in members.values():
        for index in indices:
            other_indices = [other for other in indices if other != index]
            galleries[index, : len(other_indices)] = torch.tensor(other_indices, dtype=torch.int64)
    return galleries
