"""Guidance while decoding (Kornblith et al. 2023): words that the image calls for, not those of any caption."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor

from pipeline.models.speaker import Speaker, State
from pipeline.protocols import Channel
from pipeline.types import Batch, Message


class Guided(Speaker):
    """A trained speaker whose logits are γ · those for the image + (1 − γ) · those for the null image.

    γ = 1 is the speaker itself, γ = 0 speaks of no image, and a γ above 1 pushes away from what is said of no image.
    Both conditions hear the same words: states are (N, 2, H), with the image and without. It only decodes: nothing that
    it says has a gradient.
    """

    def __init__(self, speaker: Mapping[str, Any], gamma: float) -> None:
        """`speaker`: the arguments of the one that is guided, which has a null image."""
        super().__init__(**speaker)
        assert self.null is not None
        self.gamma = gamma
        self.arguments = {"speaker": dict(speaker), "gamma": gamma}

    @classmethod
    def of(cls, speaker: Speaker, gamma: float) -> Guided:
        """`speaker`, guided; the two share their weights."""
        guided = cls(speaker.arguments, gamma)
        guided.load_state_dict(speaker.state_dict(), assign=True)
        return guided.eval()

    @torch.no_grad()
    def speak(self, batch: Batch, channel: Channel, rng: Generator, seen: Tensor | None = None) -> Message:
        return super().speak(batch, channel, rng, seen)

    @torch.no_grad()
    def read(self, batch: Batch, rng: Generator | None = None, seen: Tensor | None = None) -> Message:
        return super().read(batch, rng, seen)

    def start(self, rows: int, like: Tensor) -> State:
        zero = like.new_zeros(rows, 2, self.hidden)
        return zero, zero

    def advance(self, heard: Tensor, state: State, attention: Callable[[Tensor], Tensor]) -> State:
        (h, h_null), (c, c_null) = (x.unbind(1) for x in state)
        guided = super().advance(heard, (h, c), attention)
        free = super().advance(heard, (h_null, c_null), self._null_attention)
        return torch.stack([guided[0], free[0]], 1), torch.stack([guided[1], free[1]], 1)

    def logits(self, h: Tensor) -> Tensor:
        image, nothing = super().logits(h).unbind(1)
        return self.gamma * image + (1 - self.gamma) * nothing

    def _null_attention(self, query: Tensor) -> Tensor:
        """(N, H): there is one thing to attend to."""
        assert self.null is not None
        return self.null.expand(len(query), -1)
