"""How the gradient of a score crosses the channel: not at all, through the words, or through their probability.

One surrogate carries all three: −E[score] − E[(score − baseline).detach() · log p]. Its first term has a gradient
where the score is differentiable in what was said or has parameters of its own, the second belongs to ScoreFunction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pipeline import ranks
from pipeline.baselines import NoBaseline
from pipeline.protocols import Baseline, Channel, Rollouts, Score
from pipeline.types import Message, Report

Reduction = Literal["mean", "sum"]


def surrogate(
    value: Tensor, message: Message, advantage: Tensor | None = None, reduction: Reduction = "mean"
) -> tuple[Tensor, Report]:
    """The scalar to be minimised, from scores `value` (N,) and, for ScoreFunction, `advantage` (N,).

    The scores are summed or averaged over captions as `reduction` says; the log-probabilities are averaged over the
    words of the batch, EOS included (self-critical.pytorch). Of a batch of which ranks hold parts, this is a rank's
    share: shares add up to the loss, and reports average to what is worth logging.
    """
    report = {"score": value.detach().mean(), "words": message.mask.sum(1).float().mean()}
    loss = torch.zeros((), device=value.device)
    if value.requires_grad:
        loss = loss - (value.sum() if reduction == "sum" else value.mean() / ranks.size())
    if advantage is not None:
        assert message.log_probs is not None
        credit = advantage.detach().unsqueeze(1) * message.mask  # (N, T)
        words = ranks.total(message.mask.sum())
        loss = loss - (credit * message.log_probs).sum() / words
        report["advantage"] = advantage.detach().mean()
        report["log_prob"] = message.log_probs.detach().sum() * ranks.size() / words
    return loss, report


@dataclass(frozen=True)
class Detached:
    """No gradient to the speaker: only who hears learns."""

    channel: Channel
    reduction: Reduction = "mean"

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.of(self.channel).detached()
        return surrogate(score(message, rollouts.batch), message, reduction=self.reduction)


@dataclass(frozen=True)
class Pathwise:
    """Through what was said: straight-through, Gumbel, partial sampling."""

    channel: Channel
    reduction: Reduction = "mean"

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.of(self.channel)
        return surrogate(score(message, rollouts.batch), message, reduction=self.reduction)


@dataclass(frozen=True)
class ScoreFunction:
    """Through the log-probability of what was said, minus a baseline (Williams 1992; PSST §4.1)."""

    channel: Channel
    baseline: Baseline = NoBaseline()
    reduction: Reduction = "mean"

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.of(self.channel)
        value = score(message, rollouts.batch)
        with torch.no_grad():
            advantage = value - self.baseline(value.detach(), score, rollouts)
        return surrogate(value, message, advantage, self.reduction)
