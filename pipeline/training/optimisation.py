"""How weights move: the learning-rate schedules and clippings of the papers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pipeline.ranges import Count, Natural, Positive, Share

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Optimisation:
    """Settings of one training run."""

    epochs: Natural
    batch: Count = 128
    captions: Literal["one", "all"] = "one"
    """How many of its captions an epoch shows of each image: one at random, or all, one after the other."""
    order: Literal["random", "neighbourhoods"] = "random"
    """`neighbourhoods`: drawn scenes of a neighbourhood follow each other, so that a batch is hard to tell apart."""
    learning_rate: Positive = 5e-4
    schedule: Literal["step", "cosine", "constant"] = "constant"
    decay: Share | None = None
    """Of `step`: the factor after each `decay_every` epochs."""
    decay_every: Count | None = None
    start_epoch: Natural = 0
    """Of `step`: the epochs of an earlier training, which the decay counts as well (DiscCaptioning, PSST)."""
    clip_value: Positive | None = None
    """Every element of a gradient is clamped to ± this (DiscCaptioning)."""
    clip_norm: Positive | None = None
    """The norm of an agent's whole gradient is scaled down to this (VSE++)."""
    select: str = "last"
    """`last`, or the validation metric whose best epoch is kept."""
    validate_every: Natural = 1
    """Epochs between validations; 0 for none."""
    parts: Count = 1
    """Of an epoch: above 1, there is a validation before the first step, too, and after each part."""
    patience: Count | None = None
    """Validations without a better `select` after which training ends; None: it goes on to the last epoch."""
    min_steps: Natural = 0
    """Where `epochs` are fewer steps than this, of few images, they and all lengths in epochs here are multiplied."""

    def lengthened(self, steps_an_epoch: int) -> Optimisation:
        """With `epochs`, `validate_every` and `decay_every` times the least whole number that gives `min_steps`.

        No epochs stay none.
        """
        steps = self.epochs * steps_an_epoch
        times = max(1, math.ceil(self.min_steps / steps)) if steps else 1
        return replace(
            self,
            epochs=self.epochs * times,
            validate_every=self.validate_every * times,
            decay_every=None if self.decay_every is None else self.decay_every * times,
            start_epoch=self.start_epoch * times,
        )

    def ends_part(self, step: int, steps_an_epoch: int) -> bool:
        """Whether a part of an epoch, but not the epoch, ends with `step` (from 1)."""
        ended = step * self.parts // steps_an_epoch
        return step % steps_an_epoch > 0 and ended > (step - 1) * self.parts // steps_an_epoch

    def rate(self, step: int, steps_an_epoch: int) -> float:
        """The learning rate of `step` (from 0)."""
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / (self.epochs * steps_an_epoch)))
        if self.schedule == "step":
            assert self.decay is not None
            assert self.decay_every is not None
            epoch = self.start_epoch + step // steps_an_epoch
            return self.learning_rate * self.decay ** (epoch // self.decay_every)
        return self.learning_rate

    def has_saturated(self, history: Sequence[Mapping[str, float]]) -> bool:
        """Whether the last `patience` validations of `history` brought nothing better than the one before them."""
        values = [entry[f"val/{self.select}"] for entry in history if f"val/{self.select}" in entry]
        return bool(self.patience and values and len(values) - 1 - values.index(max(values)) >= self.patience)

    def clip(self, parameters: Iterable[nn.Parameter]) -> None:
        """Limit gradients in place."""
        from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # settings are checked before torch is there

        parameters = [p for p in parameters if p.grad is not None]
        if not parameters:  # whose turn it is has nothing to learn
            return
        if self.clip_norm is not None:
            clip_grad_norm_(parameters, self.clip_norm)
        if self.clip_value is not None:
            clip_grad_value_(parameters, self.clip_value)
