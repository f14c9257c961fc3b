"""Estimators of a score's gradient across the channel: none, through the tokens, or through their log-probability.

One surrogate serves all three: −E[score] − E[(score − baseline).detach() · log p]. The first term has a gradient where
the score is differentiable in the message or has parameters. Only ScoreFunction and RelaxEstimator use the second.
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


def build_surrogate(
    value: Tensor,
    message: Message,
    advantage: Tensor | None = None,
    reduction: Reduction = "mean",
    words: Words = "all",
    weighting: Weighting = "word",
) -> tuple[Tensor, Report]:
    """Return the scalar to be minimised and its report; `value` (N,) are scores, `advantage` is (N,) or (N, T).

    Only ScoreFunction and RelaxEstimator pass an advantage. `reduction` sums or averages the scores over captions;
    "words" divides their sum by the batch's number of tokens. Products of advantage and log-probability are averaged
    over all tokens of the batch with EOS (self-critical.pytorch), even where only some `words` have an advantage. With
    `weighting` "caption", their sum is averaged over the captions of the batch.
    Where ranks hold parts of a batch, the result is this rank's share: losses are summed over ranks, reports averaged.
    """
    report = {"score": value.detach().mean(), "words": message.mask.sum(1).float().mean()}
    loss = torch.zeros((), device=value.device)
    if value.requires_grad and reduction == "words":
        loss = loss - value.sum() / ranks.all_sum(message.mask.sum())
    elif value.requires_grad:
        loss = loss - (value.sum() if reduction == "sum" else value.mean() / ranks.count_ranks())
    if advantage is not None:
        assert message.log_probs is not None
        credit = expand_per_token(advantage.detach()) * message.token_mask(words)  # (N, T)
        count = ranks.all_sum(message.mask.sum())
        divisor = count if weighting == "word" else ranks.all_sum(message.mask.any(1).sum())
        loss = loss - (credit * message.log_probs).sum() / divisor
        per_caption = advantage.dim() == 1
        report["advantage"] = advantage.detach().mean() if per_caption else credit.sum() * ranks.count_ranks() / count
        report["log_prob"] = message.log_probs.detach().sum() * ranks.count_ranks() / count
    return loss, report


@dataclass(frozen=True)
class Detached:
    """Estimator without a gradient to the speaker: only the scoring network is trained."""

    channel: Channel
    reduction: Reduction = "mean"

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.get_message(self.channel).detach()
        return build_surrogate(score(message, rollouts.batch), message, reduction=self.reduction)


@dataclass(frozen=True)
class Pathwise:
    """Estimator through the tokens: straight-through, Gumbel, partial sampling."""

    channel: Channel
    reduction: Reduction = "mean"

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.get_message(self.channel)
        return build_surrogate(score(message, rollouts.batch), message, reduction=self.reduction)


@dataclass(frozen=True)
class NoBaseline:
    """A baseline of 0."""

    min_samples = 1
    per_token = False

    def __call__(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        return torch.zeros_like(value)


@dataclass(frozen=True)
class NoScaling:
    """No change of the advantages."""

    min_samples = 1

    def __call__(self, advantage: Tensor, rollouts: Rollouts) -> Tensor:
        return advantage


@dataclass(frozen=True)
class CaptionCredit:
    """Credit of the whole caption's score to every token."""

    per_token = False

    def __call__(self, value: Tensor, score: Score, channel: Channel, rollouts: Rollouts) -> Tensor:
        return value


@dataclass(frozen=True)
class ScoreFunction:
    """Estimator through the log-probability of the tokens, with baseline and scaling (Williams 1992; PSST §4.1).

    Raises UserError where the channel draws fewer samples than the baseline or scaling needs. Also raises UserError
    for a scaling combined with a baseline or credit per token.
    """

    channel: Channel
    baseline: Baseline = NoBaseline()
    reduction: Reduction = "mean"
    scaling: Scaling = NoScaling()
    credit: Credit = CaptionCredit()
    words: Words = "all"
    weighting: Weighting = "word"

    def __post_init__(self) -> None:
        for part in (self.baseline, self.scaling):
            if self.channel.samples < part.min_samples:
                raise UserError(
                    f"{type(part).__name__} compares captions of an image: expected samples of at least "
                    f"{part.min_samples}, found {self.channel.samples}; set train.objective.samples, or the "
                    "method's own samples"
                )
        if (self.credit.per_token or self.baseline.per_token) and not isinstance(self.scaling, NoScaling):
            raise UserError(
                f"{type(self.scaling).__name__} scales one number per caption, found a number per token of the credit "
                "or baseline: use NoScaling()"
            )

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        message = rollouts.get_message(self.channel)
        value = score(message, rollouts.batch)
        advantage = self.advantage(value.detach(), score, rollouts)
        return build_surrogate(value, message, advantage, self.reduction, self.words, self.weighting)

    @torch.no_grad()
    def advantage(self, value: Tensor, score: Score, rollouts: Rollouts) -> Tensor:
        """Compute the advantage, (N,) or per token (N, T), of captions with the scores `value` (N,)."""
        credit = self.credit(value, score, self.channel, rollouts)
        baseline = self.baseline(value, score, rollouts)
        if credit.dim() != baseline.dim():
            credit, baseline = expand_per_token(credit), expand_per_token(baseline)
        return self.scaling(credit - baseline, rollouts)


def expand_per_token(x: Tensor) -> Tensor:
    """Return (N,) as (N, 1), so that a caption's number broadcasts over its tokens; return (N, T) unchanged."""
    return x.unsqueeze(1) if x.dim() == 1 else x
