"""Settings of optimisation: the learning-rate schedules and gradient clipping of the papers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pipeline.ranges import Count, Natural, Positive, Share, SmallCount

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Optimisation:
    """Optimisation settings of one training run."""

    epochs: Natural
    batch: Count = 128
    captions: Literal["one", "all"] = "one"
    """Captions per image and epoch: one at random, or each of them once, in separate passes over the images."""
    order: Literal["random", "neighbourhoods", "look_alikes"] = "random"
    """Order of the images in an epoch; all orders but `random` put hard negatives into each batch.

    With `neighbourhoods`, drawn scenes or films of a neighbourhood are consecutive. With `look_alikes`, images with
    similar vectors are consecutive. These vectors are the listener's features, and groups are formed anew in each
    pass.
    """
    group_size: SmallCount = 4
    """Images per group of `look_alikes`."""
    learning_rate: Positive = 5e-4
    schedule: Literal["step", "cosine", "constant"] = "constant"
    decay: Share | None = None
    """Factor of the schedule `step` after each `decay_every` epochs."""
    decay_every: Count | None = None
    start_epoch: Natural = 0
    """Epochs of an earlier training, which the schedule `step` adds to the epoch (DiscCaptioning, PSST)."""
    clip_value: Positive | None = None
    """Largest absolute value of a gradient's element; larger elements are clamped (DiscCaptioning)."""
    clip_norm: Positive | None = None
    """Maximum norm of an agent's whole gradient (VSE++)."""
    select: str = "last"
    """`last` for the weights of the last step, or the validation metric whose best weights are kept."""
    validate_every: Natural = 1
    """Epochs between validations at the ends of epochs; the last epoch always has one. 0: no validation there."""
    validations_per_epoch: Count = 1
    """Parts of an epoch. Above 1, there is a validation after each part but the last, and before the first step."""
    patience: Count | None = None
    """Validations without a better `select` after which training ends; None: training runs to the last epoch."""
    min_steps: Natural = 0
    """Minimum number of steps; where `epochs` give fewer, all lengths in epochs here are multiplied."""

    def lengthen(self, steps_per_epoch: int) -> Optimisation:
        """Return settings whose lengths in epochs are multiplied by the smallest integer that gives `min_steps` steps.

        These are `epochs`, `validate_every`, `decay_every` and `start_epoch`. Zero epochs stay zero.
        """
        steps = self.epochs * steps_per_epoch
        factor = max(1, math.ceil(self.min_steps / steps)) if steps else 1
        return replace(
            self,
            epochs=self.epochs * factor,
            validate_every=self.validate_every * factor,
            decay_every=None if self.decay_every is None else self.decay_every * factor,
            start_epoch=self.start_epoch * factor,
        )

    def ends_part(self, step: int, steps_per_epoch: int) -> bool:
        """Return whether `step` (from 1) ends a part of an epoch, but not the epoch."""
        parts = step * self.validations_per_epoch // steps_per_epoch
        return step % steps_per_epoch > 0 and parts > (step - 1) * self.validations_per_epoch // steps_per_epoch

    def validates(self, epoch: int) -> bool:
        """Return whether there is a validation at the end of `epoch` (from 0)."""
        last = epoch + 1 == self.epochs
        return bool(self.validate_every) and ((epoch + 1) % self.validate_every == 0 or last)

    def rate(self, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of `step` (from 0)."""
        if self.schedule == "cosine":
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / (self.epochs * steps_per_epoch)))
        if self.schedule == "step":
            assert self.decay is not None
            assert self.decay_every is not None
            epoch = self.start_epoch + step // steps_per_epoch
            return self.learning_rate * self.decay ** (epoch // self.decay_every)
        return self.learning_rate

    def has_saturated(self, history: Sequence[Mapping[str, float]]) -> bool:
        """Return whether the last `patience` validations of `history` did not improve on the best one before them."""
        values = [entry[f"val/{self.select}"] for entry in history if f"val/{self.select}" in entry]
        return bool(self.patience and values and len(values) - 1 - values.index(max(values)) >= self.patience)

    def clip(self, parameters: Iterable[nn.Parameter]) -> None:
        """Clip gradients in place by `clip_norm` and `clip_value`."""
        # imported here: settings are checked without torch
        from torch.nn.utils import clip_grad_norm_, clip_grad_value_

        parameters = [p for p in parameters if p.grad is not None]
        if not parameters:  # no parameter of this role received a gradient
            return
        if self.clip_norm is not None:
            clip_grad_norm_(parameters, self.clip_norm)
        if self.clip_value is not None:
            clip_grad_value_(parameters, self.clip_value)
