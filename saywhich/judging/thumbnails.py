"""Thumbnails as an encoder without weights: mean colours of cells and histograms of edge directions.

The encoder works offline and is no judge. Its colours identify near-duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from saywhich.judging.judging_choices import THUMBNAIL
from saywhich.judging.photo_vectors import PreparedPhoto
from saywhich.photos import Photo, open_photo

SIDE, CELLS, EDGE_CELLS, DIRECTIONS = 32, 8, 4, 8
COLOURS = CELLS * CELLS * 3  # mean colours in 0 … 1, the first numbers of a vector
MAX_COLOUR_DIFFERENCE = 0.03  # largest difference of a cell's mean colour between near-duplicates
BLOCK = 2**22  # numbers compared at once


class Thumbnails:
    """Mean colours of 8 × 8 cells, and histograms of edge directions in 4 × 4 cells; a `PhotoEncoder`."""

    name = THUMBNAIL
    digest = "thumbnail 1"
    size = COLOURS + EDGE_CELLS * EDGE_CELLS * DIRECTIONS

    def prepare(self, photo: Photo) -> PreparedPhoto:
        with open_photo(photo, 4) as image:
            small = np.asarray(image.resize((SIDE, SIDE)))
        return {"pixels": torch.from_numpy(small.copy())}

    def encode_photos(self, prepared: Sequence[PreparedPhoto]) -> np.ndarray:
        pixels = torch.stack([each["pixels"] for each in prepared]).double().permute(0, 3, 1, 2) / 255
        colours = torch.nn.functional.avg_pool2d(pixels, SIDE // CELLS).flatten(1)
        return torch.cat([colours, _compute_edge_histograms(pixels.mean(1))], 1).float().numpy()


def find_near_duplicates(vectors: Tensor, candidates: Tensor) -> Tensor:
    """Return (M, K) bool: whether photo `candidates[i, k]` is a near-duplicate of photo i, by `vectors` (M, H).

    `vectors` are embeddings by `Thumbnails`; a candidate of −1 is no photo. The mean colours of near-duplicates differ
    by at most 3 % of the range in each of the 8 × 8 cells.
    """
    colours = vectors[:, :COLOURS]
    duplicates = torch.zeros_like(candidates, dtype=torch.bool)
    rows = max(1, BLOCK // (COLOURS * max(1, candidates.shape[1])))
    for first in range(0, len(colours), rows):
        part = slice(first, first + rows)
        candidate_colours = colours[candidates[part].clamp(min=0)]
        duplicates[part] = (candidate_colours - colours[part, None]).abs().amax(2) <= MAX_COLOUR_DIFFERENCE
    return duplicates & (candidates >= 0)


def _compute_edge_histograms(grey: Tensor) -> Tensor:
    """Return edge histograms (B, 128) of grey images (B, 32, 32), each of unit norm, or 0 without edges."""
    horizontal, vertical = torch.zeros_like(grey), torch.zeros_like(grey)
    horizontal[:, :, 1:-1] = grey[:, :, 2:] - grey[:, :, :-2]
    vertical[:, 1:-1] = grey[:, 2:] - grey[:, :-2]
    strength = (horizontal.square() + vertical.square()).sqrt()
    direction = (torch.atan2(vertical, horizontal) % torch.pi / torch.pi * DIRECTIONS).long().clamp(max=DIRECTIONS - 1)
    strengths = strength[:, None] * (direction[:, None] == torch.arange(DIRECTIONS)[:, None, None])
    return torch.nn.functional.normalize(torch.nn.functional.avg_pool2d(strengths, SIDE // EDGE_CELLS).flatten(1))
