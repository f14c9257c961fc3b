"""A learned baseline: what a critic expects before each word, and how the critic learns it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.estimators.surrogate import WholeCaption, per_word
from pipeline.models.critic import Critic
from pipeline.protocols import Channel, Credit, Rollouts, Score
from pipeline.runtime import ranks
from pipeline.types import Report, Words


@dataclass(frozen=True)
class Learned:
    """What `critic` expects before each word of captions through `channel`, (N, T).

    It has not heard the word, so the gradient stays unbiased; what it is taught is another term's (`Regression`).
    """

    critic: Critic
    channel: Channel
    least = 1
    by_word = True

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        states = rollouts.of(self.channel).states
        assert states is not None
        return self.critic(states())


@dataclass(frozen=True)
class Regression:
    """No gradient to the speaker: a critic learns, by least squares, what its states promise for each word's credit."""

    channel: Channel
    critic: Critic
    credit: Credit = WholeCaption()
    words: Words = "all"

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.of(self.channel)
        assert message.states is not None
        with torch.no_grad():
            value = score(message, rollouts.batch)
            worth = per_word(self.credit(value, score, self.channel, rollouts))
        counted = message.share(self.words)
        count = ranks.total(counted.sum()).clamp(min=1)
        expected = self.critic(message.states())
        loss = ((expected - worth).square() * counted).sum() / count
        return loss, {"expected": (expected.detach() * counted).sum() * ranks.size() / count}
