"""Generators of visual dialog: any decoder, told what an encoder makes of image, history and question."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from pipeline.models.decoder import Decoder, Dropout, State
from pipeline.models.dialog_encoders import Encoder
from pipeline.types import Batch


class Answering(Decoder):
    """`inner` speaks of what `encoder` gives as it would speak of regions; both hear the words alike."""

    def __init__(self, encoder: Encoder, inner: Decoder) -> None:
        made = {
            name: {"kind": type(part).__name__, "arguments": part.arguments}
            for name, part in (("encoder", encoder), ("inner", inner))
        }
        super().__init__(inner.vocabulary, inner.hidden, inner.max_words, inner.dropout, made)
        self.encoder, self.inner = encoder, inner

    @property
    def word(self) -> nn.Embedding:  # type: ignore[override]
        return self.inner.word

    @property
    def logit(self) -> nn.Linear:  # type: ignore[override]
        return self.inner.logit

    def see(self, batch: Batch) -> Tensor:
        return self.inner.see(_told(batch, self.encoder(batch, self.word)))

    def begin(self, batch: Batch, seen: Tensor, drop: Dropout, width: int) -> State:
        return self.inner.begin(_told(batch, seen), seen, drop, width)

    def step(self, heard: Tensor, state: State) -> tuple[Tensor, State]:
        return self.inner.step(heard, state)

    def select(self, state: State, rows: Tensor, same_images: bool = False) -> State:
        return self.inner.select(state, rows, same_images)

    def read(self, batch: Batch, seen: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        return self.inner.read(_told(batch, seen), seen, drop)


def _told(batch: Batch, regions: Tensor) -> Batch:
    """`batch` with what it is told in place of regions."""
    there = torch.ones(regions.shape[:2], dtype=torch.bool, device=regions.device)
    return replace(batch, regions=regions, region_mask=there)
