"""Guidance while decoding (Kornblith et al. 2023): words that the image calls for, not those of any caption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.models.decoder import Decoder, Dropout
from pipeline.types import Batch


class Guided(Decoder):
    """A trained speaker whose logits are γ · those for the image + (1 − γ) · those for the null image.

    γ = 1 is the speaker itself, γ = 0 speaks of no image, and a γ above 1 pushes away from what is said of no image.
    Both conditions hear the same words: hidden states are (n, 2, H), with the image and without. It only decodes:
    nothing that it says has a gradient.
    """

    learns = False

    def __init__(self, inner: Decoder, gamma: float) -> None:
        """`inner`, which has a null image and shares its weights with this."""
        made = {"kind": type(inner).__name__, "arguments": inner.arguments}
        super().__init__(inner.vocabulary, inner.hidden, inner.max_words, 0.0, {"inner": made, "gamma": gamma})
        assert inner.null is not None
        self.inner, self.gamma = inner, gamma
        self.eval()

    @property
    def word(self) -> nn.Embedding:  # type: ignore[override]
        return self.inner.word

    @property
    def logit(self) -> nn.Linear:  # type: ignore[override]
        return self.inner.logit

    def see(self, batch: Batch) -> Tensor:
        return self.inner.see(batch)

    def begin(self, batch: Batch, seen: Tensor, drop: Dropout, width: int) -> tuple[Any, Any]:
        nothing = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
        unseen = self.inner.begin(nothing, self.inner.see(nothing), drop, width)
        return self.inner.begin(batch, seen, drop, width), unseen

    def step(self, heard: Tensor, state: tuple[Any, Any]) -> tuple[Tensor, tuple[Any, Any]]:
        image, after_image = self.inner.step(heard, state[0])
        nothing, after_nothing = self.inner.step(heard, state[1])
        return torch.stack([image, nothing], 1), (after_image, after_nothing)

    def select(self, state: tuple[Any, Any], rows: Tensor, same_images: bool = False) -> tuple[Any, Any]:
        image, nothing = (self.inner.select(each, rows, same_images) for each in state)
        return image, nothing

    def logits(self, hidden: Tensor) -> Tensor:
        image, nothing = self.inner.logits(hidden).unbind(1)
        return self.gamma * image + (1 - self.gamma) * nothing
