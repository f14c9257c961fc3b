"""Classifier-free guidance at decoding (Kornblith et al. 2023), which raises the logits of image-specific tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.decoder import Decoder, RolloutDropout, StepwiseDecoder, WrappedDecoder
from pipeline.models.kernels.dispatch import accelerate_decoder
from pipeline.types import Batch


class GuidedState(NamedTuple):
    """Decoder states of n captions with and without the image, by the inner decoder or its fast form."""

    decoder: StepwiseDecoder
    image: object
    null: object


class GuidedDecoder(WrappedDecoder[GuidedState]):
    """Trained speaker with the logits γ · logits(image) + (1 − γ) · logits(null image), without gradients.

    γ = 1 is the speaker itself, and γ = 0 uses the null image only. γ > 1 lowers the probability of captions of the
    null image. Both conditions have the same input tokens. Hidden states are (n, 2, H): with the image, and without.
    """

    requires_grad = False

    def __init__(self, inner: Decoder, gamma: float) -> None:
        """Wrap `inner`, which must have a null image; the weights are shared."""
        super().__init__(inner.vocabulary, inner.hidden, inner.max_words, 0.0, collect_constructor_arguments(locals()))
        assert inner.null is not None
        self.inner, self.gamma = inner, gamma
        self.eval()

    def encode_image(self, batch: Batch) -> Tensor:
        return self.inner.encode_image(batch)

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> GuidedState:
        decoder = accelerate_decoder(self.inner)
        null = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
        null_state = decoder.begin(null, self.inner.encode_image(null), drop, width)
        return GuidedState(decoder, decoder.begin(batch, encoded, drop, width), null_state)

    def step(self, inputs: Tensor, state: GuidedState) -> tuple[Tensor, GuidedState]:
        image, image_state = state.decoder.step(inputs, state.image)
        null, null_state = state.decoder.step(inputs, state.null)
        return torch.stack([image, null], 1), GuidedState(state.decoder, image_state, null_state)

    def select(self, state: GuidedState, rows: Tensor, same_images: bool = False) -> GuidedState:
        image, null = (state.decoder.select(each, rows, same_images) for each in (state.image, state.null))
        return GuidedState(state.decoder, image, null)

    def logits(self, hidden: Tensor) -> Tensor:
        image, null = self.inner.logits(hidden).unbind(1)
        return self.gamma * image + (1 - self.gamma) * null
