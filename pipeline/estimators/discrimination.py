"""Training of a discriminator of human and other captions, without a gradient to the speaker."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.protocols import Channel, Rollouts, Score
from pipeline.runtime import ranks
from pipeline.types import Report


@dataclass(frozen=True)
class BinaryDiscrimination:
    """Logistic loss of a score (log-odds) on human captions against captions through `channel`."""

    channel: Channel

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        human, other = (
            score(rollouts.get_message(channel).detach(), rollouts.batch)
            for channel in (TeacherForcing(requires_grad=False), self.channel)
        )
        loss = (softplus(-human).mean() + softplus(other).mean()) / 2
        accuracy = torch.cat([human.detach() > 0, other.detach() <= 0]).float().mean()
        human_mean, other_mean = (log_odds.detach().sigmoid().mean() for log_odds in (human, other))
        return loss / ranks.count_ranks(), {"accuracy": accuracy, "human": human_mean, "others": other_mean}
