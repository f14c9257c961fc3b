"""Pragmatic decoding at evaluation: distractors are the images of the split that the own listener encodes alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pipeline.models.decoder import Decoder
from pipeline.models.inference import optimize_for_decoding
from pipeline.models.pragmatic_decoder import DistractorBatches, PragmaticDecoder
from pipeline.types import Batch

AT_ONCE = 2**22  # scores held in memory


class ImageEncoder(Protocol):
    """The part of a judge that encodes images."""

    def encode_image(self, rows: Tensor) -> Tensor:
        """Return embeddings (M, D) of the images `rows` (M,) of the prepared data set."""
        ...


@dataclass(frozen=True)
class PragmaticCaptions:
    """Pragmatic decoding with α = `alpha` and `distractors` images, the nearest by `encoder` among a split's images."""

    alpha: float
    distractors: int
    encoder: ImageEncoder

    def bind(
        self, speaker: Decoder, rows: np.ndarray, read: Callable[[np.ndarray], Batch], device: torch.device
    ) -> PragmaticDecoder:
        """Return the pragmatic speaker for the images `rows` (M,), whose features `read` gives."""
        nearest = nearest_images(self.encoder.encode_image(torch.from_numpy(rows)), self.distractors).numpy()
        place = {int(row): at for at, row in enumerate(rows)}

        def find(batch: Batch) -> DistractorBatches:
            others = nearest[[place[row] for row in batch.images.tolist()]]  # (B, K)
            batches = [read(rows[np.maximum(column, 0)]).to(device) for column in others.T]
            return DistractorBatches(batches, torch.from_numpy(others >= 0))

        return PragmaticDecoder(optimize_for_decoding(speaker.to(device).eval()), self.alpha, find)


def nearest_images(vectors: Tensor, number: int) -> Tensor:
    """Return the `number` nearest other images (M, number) of each of M images, as `nearest_among` does."""
    rows = torch.arange(len(vectors))
    parts = rows.split(max(1, AT_ONCE // max(1, len(vectors))))
    return torch.cat([nearest_among(vectors[part], vectors, part.unsqueeze(1) == rows, number) for part in parts])


def nearest_among(vectors: Tensor, gallery: Tensor, same: Tensor, number: int) -> Tensor:
    """Return the `number` nearest of N images (M, number) of each of M images, by inner product; −1: there are fewer.

    `vectors` (M, D) and `gallery` (N, D) are embeddings; `same` (M, N) bool marks the gallery's copies of an image,
    which do not count. Equally near images are taken in their order.
    """
    scores = (vectors.double() @ gallery.double().T).float().cpu().masked_fill(same.cpu(), -torch.inf)
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :number]
    nearest = torch.full((len(vectors), number), -1)
    nearest[:, : order.shape[1]] = order.masked_fill(scores.gather(1, order).isneginf(), -1)
    return nearest
