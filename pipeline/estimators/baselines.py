"""Baselines, which lower the variance of score-function gradients, and scalings of the advantage.

The advantage is the score minus the baseline. `min_samples` is the smallest number of captions per
image that a baseline or scaling accepts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.channels.hard import Greedy
from pipeline.protocols import Baseline, Channel, Rollouts, Score
from pipeline.runtime import ranks


@dataclass(frozen=True)
class SelfCritical:
    """The score of the speaker's greedy caption (Rennie et al. 2017), the same for all samples of an image.

    With `channel=TeacherForcing()` it is the score of the human caption, the baseline of PSST's REINFORCE.
    """

    channel: Channel = Greedy()
    min_samples = 1
    per_token = False

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        baseline = score(rollouts.get_message(self.channel).detach(), rollouts.batch)
        return baseline.repeat_interleave(len(value) // len(baseline))


@dataclass(frozen=True)
class LeaveOneOut:
    """The mean score of the image's other samples (RLOO, Kool et al. 2019)."""

    min_samples = 2
    per_token = False

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        groups = value.view(len(rollouts.batch), -1)
        return ((groups.sum(1, keepdim=True) - groups) / (groups.shape[1] - 1)).flatten()


@dataclass(frozen=True)
class GroupMean:
    """The mean score of the image's samples (GRPO, Shao et al. 2024).

    Each caption contributes to its own baseline, which shrinks the expected gradient. With n samples, the factor is
    1 − 1/n for scores of single captions. For scores of pairs it is 1 − 2/n, since both captions share the score.
    """

    min_samples = 2
    per_token = False

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        groups = value.view(len(rollouts.batch), -1)
        return groups.mean(1, keepdim=True).expand_as(groups).flatten()


class RunningMean(nn.Module):
    """The mean over all earlier batches of the batch's mean score, each batch with equal weight; 0 before the first.

    Discriminative fine-tuning uses this baseline (Dessì et al. 2023, published code). It does not depend on the batch's
    captions, so the gradient stays unbiased. Checkpoints hold the mean and the number of batches.
    """

    min_samples = 1
    per_token = False
    mean: Tensor
    batches: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        baseline = self.mean.to(value.dtype).expand_as(value).clone()
        self.batches += 1
        self.mean += (ranks.all_sum(value.mean()) / ranks.count_ranks() - self.mean) / self.batches
        return baseline


@dataclass(frozen=True)
class CentredBaseline:
    """The baseline `inner` plus the batch's mean advantage over it, so that advantages sum to zero.

    The mean includes the caption's own advantage, which biases the gradient by the order 1/N.
    """

    inner: Baseline = SelfCritical()
    per_token = False

    @property
    def min_samples(self) -> int:
        """Return the minimum number of captions per image."""
        return self.inner.min_samples

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        baseline = self.inner(value, score, rollouts)
        return baseline + ranks.all_sum((value - baseline).mean()) / ranks.count_ranks()


@dataclass(frozen=True)
class GroupStd:
    """Division by the sample standard deviation of the advantages of an image's samples, plus `epsilon`.

    With `GroupMean` this is GRPO as in TRL. Images whose samples have nearly equal scores get the same weight as other
    images. The result is therefore not the gradient of the expected score.
    """

    epsilon: float = 1e-4
    min_samples = 2

    def __call__(self, advantage: Tensor, rollouts: Rollouts) -> Tensor:
        groups = advantage.view(len(rollouts.batch), -1)
        return (groups / (groups.std(1, keepdim=True) + self.epsilon)).flatten()


@dataclass(frozen=True)
class BatchStd:
    """Division by the standard deviation of the whole batch's advantages plus `epsilon`; all terms get one scale.

    The mean is kept; `CentredBaseline` subtracts it.
    """

    epsilon: float = 1e-4
    min_samples = 1

    def __call__(self, advantage: Tensor, rollouts: Rollouts) -> Tensor:
        mean = ranks.all_sum(advantage.mean()) / ranks.count_ranks()
        variance = ranks.all_sum((advantage - mean).square().mean()) / ranks.count_ranks()
        return advantage / (variance.sqrt() + self.epsilon)
