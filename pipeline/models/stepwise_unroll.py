"""Step-by-step unroll of any decoder, differentiated by autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pipeline.models.decoder import Decoder, RolloutDropout, StepwiseDecoder
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.models.steps import UnrollStep
from pipeline.protocols import RelaxingChannel
from pipeline.types import Batch


class Unroll(Protocol):
    """Interface of an unroll, which computes states and logits step by step; `logit` is the speaker's output layer."""

    logit: SharedWeight

    def set_inputs(
        self, tokens: Tensor, step: UnrollStep | None = None, channel: RelaxingChannel | None = None
    ) -> None:
        """Set the next inputs: `tokens` (n,), or in the rows `step.full` the distributions of `step`."""

    def step(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the states (n, H) of the captions `rows` (n,) in one step, before and after dropout."""

    def compute_logits(self, states: Tensor) -> Tensor:
        """Compute the logits (n, V+1) of states (n, H) after dropout, without a graph."""

    def select(self, rows: Tensor, same_images: bool = False) -> None:
        """Keep the captions `rows` (m,), in that order (`Decoder.select`)."""

    def connect(self, steps: Sequence[UnrollStep]) -> None:
        """Give the states and fed distributions of `steps` a graph, if they have none yet."""


class StepwiseUnroll:
    """Unroll of `decoder`, which is `speaker` or its fast form."""

    def __init__(
        self,
        speaker: Decoder,
        decoder: StepwiseDecoder,
        batch: Batch,
        encoded: Tensor,
        drop: RolloutDropout,
        width: int,
    ) -> None:
        self.speaker, self.decoder, self.drop, self.width = speaker, decoder, drop, width
        self.word, self.logit = SharedWeight(speaker.word.weight), SharedWeight(speaker.logit.weight)
        self._state = decoder.begin(batch, encoded, drop, width)
        self._inputs: Tensor

    def set_inputs(
        self, tokens: Tensor, step: UnrollStep | None = None, channel: RelaxingChannel | None = None
    ) -> None:
        self._inputs = self.word.rows(tokens)
        if step is not None:
            assert channel is not None
            mixtures = self.word.mixture(step.distribution(channel, self.logit, self.speaker.logit.bias))
            self._inputs = step.next_inputs(self._inputs, mixtures)

    def step(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        hidden, self._state = self.decoder.step(self._inputs, self._state)
        return hidden, self.drop(hidden, rows, self.width)

    @torch.no_grad()
    def compute_logits(self, states: Tensor) -> Tensor:
        return self.speaker.logits(states)

    def select(self, rows: Tensor, same_images: bool = False) -> None:
        self._state = self.decoder.select(self._state, rows, same_images)
        if not same_images:
            self._inputs = self._inputs[rows]

    def connect(self, steps: Sequence[UnrollStep]) -> None:
        """Do nothing: each step was computed with its graph."""
