"""What to expect of a caption: subtracted from its score, it lowers the variance of score-function gradients.

And what the difference, the advantage, is divided by. Each says how many captions per image it takes (`least`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pipeline.channels.words import Greedy
from pipeline.protocols import Baseline, Channel, Rollouts, Score
from pipeline.runtime import ranks


@dataclass(frozen=True)
class SelfCritical:
    """The score of the speaker's own greedy caption (Rennie et al. 2017), the same for all samples of an image.

    With `channel=Forced()` it is the score of the human caption, the baseline of PSST's REINFORCE.
    """

    channel: Channel = Greedy()
    least = 1
    by_word = False

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        expected = score(rollouts.of(self.channel).detached(), rollouts.batch)
        return expected.repeat_interleave(len(value) // len(expected))


@dataclass(frozen=True)
class LeaveOneOut:
    """The mean score of the image's other samples (RLOO, Kool et al. 2019)."""

    least = 2
    by_word = False

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        groups = value.view(len(rollouts.batch), -1)
        return ((groups.sum(1, keepdim=True) - groups) / (groups.shape[1] - 1)).flatten()


@dataclass(frozen=True)
class GroupMean:
    """The mean score of the image's samples (GRPO, Shao et al. 2024).

    What a caption adds to its own baseline shrinks the expected gradient: of n samples by 1 − 1/n where a score is of
    one caption, by 1 − 2/n where it is of pairs, for both captions of a pair have it.
    """

    least = 2
    by_word = False

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        groups = value.view(len(rollouts.batch), -1)
        return groups.mean(1, keepdim=True).expand_as(groups).flatten()


@dataclass(frozen=True)
class Centred:
    """`inner` plus the batch's mean advantage over it, so that advantages sum to zero.

    The mean includes the caption itself: a bias of 1/N that buys a smaller norm.
    """

    inner: Baseline = SelfCritical()
    by_word = False

    @property
    def least(self) -> int:
        return self.inner.least

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        expected = self.inner(value, score, rollouts)
        return expected + ranks.total((value - expected).mean()) / ranks.size()


@dataclass(frozen=True)
class ByGroup:
    """Divided by the standard deviation (of n − 1) over the image's samples, plus `epsilon` (GRPO as in TRL).

    An image whose samples score nearly alike counts as much as any other: no gradient of the expected score.
    """

    epsilon: float = 1e-4
    least = 2

    def __call__(self, advantage: Tensor, rollouts: Rollouts) -> Tensor:
        groups = advantage.view(len(rollouts.batch), -1)
        return (groups / (groups.std(1, keepdim=True) + self.epsilon)).flatten()


@dataclass(frozen=True)
class ByBatch:
    """Divided by the standard deviation over the whole batch, plus `epsilon`: terms of any scale come to one.

    The mean stays; to take it away is what `Centred` is for.
    """

    epsilon: float = 1e-4
    least = 1

    def __call__(self, advantage: Tensor, rollouts: Rollouts) -> Tensor:
        mean = ranks.total(advantage.mean()) / ranks.size()
        variance = ranks.total((advantage - mean).square().mean()) / ranks.size()
        return advantage / (variance.sqrt() + self.epsilon)
