"""A learned baseline: a critic's predicted score before each token, and the critic's loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.estimators.surrogate import CaptionCredit, expand_per_token
from pipeline.models.critic import Critic
from pipeline.protocols import Channel, Credit, Rollouts, Score
from pipeline.runtime import ranks
from pipeline.types import Report, Words


@dataclass(frozen=True)
class CriticBaseline:
    """The score that `critic` predicts before each token of captions through `channel`, (N, T).

    The critic's input excludes the token, so the gradient stays unbiased. Another term trains the critic
    (`CriticLoss`).
    """

    critic: Critic
    channel: Channel
    min_samples = 1
    per_token = True

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        states = rollouts.get_message(self.channel).states
        assert states is not None
        values: Tensor = self.critic(states())
        return values


@dataclass(frozen=True)
class CriticLoss:
    """Least-squares loss of a critic, which predicts each token's credit from the speaker's states.

    No gradient reaches the speaker.
    """

    channel: Channel
    critic: Critic
    credit: Credit = CaptionCredit()
    words: Words = "all"

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.get_message(self.channel)
        assert message.states is not None
        with torch.no_grad():
            value = score(message, rollouts.batch)
            credit = expand_per_token(self.credit(value, score, self.channel, rollouts))
        token_mask = message.token_mask(self.words)
        count = ranks.all_sum(token_mask.sum()).clamp(min=1)
        predictions = self.critic(message.states())
        loss = ((predictions - credit).square() * token_mask).sum() / count
        return loss, {"expected": (predictions.detach() * token_mask).sum() * ranks.count_ranks() / count}
