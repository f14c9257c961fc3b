"""Generators of visual dialog: a decoder on an encoding of image, history and question."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pipeline.dialog.models.dialog_encoders import DialogEncoder
from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.decoder import Decoder, RolloutDropout, WrappedDecoder
from pipeline.types import Batch


class DialogDecoder(WrappedDecoder[object]):
    """Decoder `inner` on the output of `encoder` in place of regions; both share word embeddings."""

    def __init__(self, encoder: DialogEncoder, inner: Decoder) -> None:
        arguments = collect_constructor_arguments(locals())
        super().__init__(inner.vocabulary, inner.hidden, inner.max_words, inner.dropout, arguments)
        self.encoder, self.inner = encoder, inner

    def encode_image(self, batch: Batch) -> Tensor:
        return self.inner.encode_image(_replace_regions(batch, self.encoder(batch, self.word)))

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> object:
        return self.inner.begin(_replace_regions(batch, encoded), encoded, drop, width)

    def step(self, inputs: Tensor, state: object) -> tuple[Tensor, object]:
        return self.inner.step(inputs, state)

    def select(self, state: object, rows: Tensor, same_images: bool = False) -> object:
        return self.inner.select(state, rows, same_images)

    def teacher_force(self, batch: Batch, encoded: Tensor, drop: RolloutDropout) -> tuple[Tensor, Tensor]:
        return self.inner.teacher_force(_replace_regions(batch, encoded), encoded, drop)


def _replace_regions(batch: Batch, regions: Tensor) -> Batch:
    """Return `batch` with `regions` (N, K, H), all unmasked, in place of its regions."""
    mask = torch.ones(regions.shape[:2], dtype=torch.bool, device=regions.device)
    return replace(batch, regions=regions, region_mask=mask)
