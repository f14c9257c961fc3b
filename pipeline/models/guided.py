"""Guidance while decoding (Kornblith et al. 2023): words that the image calls for, not those of any caption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipeline.models.decoder import Decoder, Dropout
from pipeline.models.kernels.fitting import fitting
from pipeline.types import Batch


class GuidedState(NamedTuple):
    """Of n captions, by the inner decoder or its fast form."""

    decoder: Any
    image: Any
    nothing: Any


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

    def begin(self, batch: Batch, seen: Tensor, drop: Dropout, width: int) -> GuidedState:
        decoder, nothing = fitting(self.inner), replace(batch, region_mask=torch.zeros_like(batch.region_mask))
        unseen = decoder.begin(nothing, self.inner.see(nothing), drop, width)
        return GuidedState(decoder, decoder.begin(batch, seen, drop, width), unseen)

    def step(self, heard: Tensor, state: GuidedState) -> tuple[Tensor, GuidedState]:
        image, after_image = state.decoder.step(heard, state.image)
        nothing, after_nothing = state.decoder.step(heard, state.nothing)
        return torch.stack([image, nothing], 1), GuidedState(state.decoder, after_image, after_nothing)

    def select(self, state: GuidedState, rows: Tensor, same_images: bool = False) -> GuidedState:
        image, nothing = (state.decoder.select(each, rows, same_images) for each in (state.image, state.nothing))
        return GuidedState(state.decoder, image, nothing)

    def logits(self, hidden: Tensor) -> Tensor:
        image, nothing = self.inner.logits(hidden).unbind(1)
        return self.gamma * image + (1 - self.gamma) * nothing
