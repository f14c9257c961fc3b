"""What to expect of a caption: subtracted from its score, it lowers the variance of score-function gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline import ranks
from pipeline.channels import Greedy
from pipeline.protocols import Baseline, Channel, Rollouts, Score


@dataclass(frozen=True)
class NoBaseline:
    """Nothing is expected."""

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        return torch.zeros_like(value)


@dataclass(frozen=True)
class SelfCritical:
    """The score of the speaker's own greedy caption (Rennie et al. 2017), the same for all samples of an image.

    With `channel=Forced()` it is the score of the human caption, the baseline of PSST's REINFORCE.
    """

    channel: Channel = Greedy()

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        expected = score(rollouts.of(self.channel).detached(), rollouts.batch)
        return expected.repeat_interleave(len(value) // len(expected))


@dataclass(frozen=True)
class Centred:
    """`inner` plus the batch's mean advantage over it, so that advantages sum to zero.

    The mean includes the caption itself: a bias of 1/N that buys a smaller norm.
    """

    inner: Baseline = SelfCritical()

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        expected = self.inner(value, score, rollouts)
        return expected + ranks.total((value - expected).mean()) / ranks.size()
