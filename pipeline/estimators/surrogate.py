"""How the gradient of a score crosses the channel: not at all, through the words, or through their probability.

One surrogate carries all three: −E[score] − E[(score − baseline).detach() · log p]. Its first term has a gradient
where the score is differentiable in what was said or has parameters of its own, the second belongs to ScoreFunction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.protocols import Baseline, Channel, Credit, Rollouts, Scaling, Score
from pipeline.runtime import ranks
from pipeline.types import Message, Report, Words

Reduction = Literal["mean", "sum", "words"]
Weighting = Literal["word", "caption"]


def surrogate(
    value: Tensor,
    message: Message,
    advantage: Tensor | None = None,
    reduction: Reduction = "mean",
    words: Words = "all",
    weighting: Weighting = "word",
) -> tuple[Tensor, Report]:
    """The scalar to be minimised, from scores `value` (N,) and, for ScoreFunction, `advantage` (N,) or (N, T).

    The scores are summed or averaged over captions as `reduction` says; the log-probabilities are averaged over the
    words of the batch, EOS included (self-critical.pytorch), also where only some `words` have an advantage, and so are
    scores that are sums over words (reduction "words"). With `weighting` "caption" the sum over words is averaged over
    the captions of the batch. Of a batch of which ranks hold parts, this is a rank's share: shares add up to the loss,
    and reports average to what is worth logging.
    """
    report = {"score": value.detach().mean(), "words": message.mask.sum(1).float().mean()}
    loss = torch.zeros((), device=value.device)
    if value.requires_grad and reduction == "words":
        loss = loss - value.sum() / ranks.total(message.mask.sum())
    elif value.requires_grad:
        loss = loss - (value.sum() if reduction == "sum" else value.mean() / ranks.size())
    if advantage is not None:
        assert message.log_probs is not None
        credit = per_word(advantage.detach()) * message.share(words)  # (N, T)
        count = ranks.total(message.mask.sum())
        many = count if weighting == "word" else ranks.total(message.mask.any(1).sum())
        loss = loss - (credit * message.log_probs).sum() / many
        of_captions = advantage.dim() == 1
        report["advantage"] = advantage.detach().mean() if of_captions else credit.sum() * ranks.size() / count
        report["log_prob"] = message.log_probs.detach().sum() * ranks.size() / count
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
class NoBaseline:
    """Nothing is expected."""

    least = 1
    by_word = False

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        return torch.zeros_like(value)


@dataclass(frozen=True)
class Raw:
    """Advantages as they are."""

    least = 1

    def __call__(self, advantage: Tensor, rollouts: Rollouts) -> Tensor:
        return advantage


@dataclass(frozen=True)
class WholeCaption:
    """Every word answers for the whole caption."""

    by_word = False

    def __call__(self, value: Tensor, score: Score, channel: Channel, rollouts: Rollouts) -> Tensor:
        return value


@dataclass(frozen=True)
class ScoreFunction:
    """Through the log-probability of what was said, minus a baseline (Williams 1992; PSST §4.1), and scaled."""

    channel: Channel
    baseline: Baseline = NoBaseline()
    reduction: Reduction = "mean"
    scaling: Scaling = Raw()
    credit: Credit = WholeCaption()
    words: Words = "all"
    weighting: Weighting = "word"

    def __post_init__(self) -> None:
        for part in (self.baseline, self.scaling):
            if self.channel.samples < part.least:
                raise UserError(
                    f"{type(part).__name__} compares the captions of an image and needs {part.least} of them or more: "
                    f"set samples to that, not {self.channel.samples}"
                )
        if (self.credit.by_word or self.baseline.by_word) and not isinstance(self.scaling, Raw):
            raise UserError(
                f"{type(self.scaling).__name__} scales one number per caption, not one per word: set scaling to none"
            )

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.of(self.channel)
        value = score(message, rollouts.batch)
        advantage = self.advantage(value.detach(), score, rollouts)
        return surrogate(value, message, advantage, self.reduction, self.words, self.weighting)

    @torch.no_grad()
    def advantage(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        """(N,), or (N, T) for each word, of captions whose scores are `value` (N,)."""
        worth = self.credit(value, score, self.channel, rollouts)
        expected = self.baseline(value, score, rollouts)
        if worth.dim() != expected.dim():
            worth, expected = per_word(worth), per_word(expected)
        return self.scaling(worth - expected, rollouts)


def per_word(x: Tensor) -> Tensor:
    """(N, 1) or (N, T): what is (N,), one number per caption, holds for all its words."""
    return x.unsqueeze(1) if x.dim() == 1 else x
