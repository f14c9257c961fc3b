"""The exact mean and variance of an estimator, from one run for each outcome of its channel.

A channel has two random variables: the sampled tokens, and the captions or tokens that pass as distributions. A
`FixedTokens` copy of the channel fixes both, changes nothing else, and records the probability of the tokens. The
probability of the distributions that pass is a polynomial in ρ, so one enumeration serves all ρ. The mean of K
independent captions per image has the mean of one caption and a K-th of its variance.

Estimators with continuous noise (Gumbel), or with baselines that depend on other samples, are sampled (measure.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch
from torch import Generator, Tensor

from pipeline.channels.hard import Choose, Greedy, Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import StraightThrough
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.estimators.baselines import SelfCritical
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import NoBaseline, Pathwise, ScoreFunction
from pipeline.gradients.gradient_world import GradientWorld
from pipeline.gradients.measure import estimate_gradient
from pipeline.protocols import Channel, Estimator, Score
from pipeline.types import Batch, Message, TokenChoice, make_caption_mask


class FixedTokens:
    """Copy of the channel `inner` with fixed tokens `words` (N, T).

    `full` (N, T) bool is True for the tokens that pass as distributions.
    """

    def __init__(self, inner: Channel, words: Tensor, full: Tensor) -> None:
        self.inner, self.words, self.full = inner, words, full
        self.log_prob = torch.zeros((), dtype=torch.float64)  # log-probability of all tokens chosen so far

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        draw, mask = self.inner.open(batch, vocabulary, rng), make_caption_mask(self.words)
        channel: Any = getattr(self.inner, "inner", self.inner)

        def step(t: int, logits: Tensor, rows: Tensor) -> TokenChoice:
            choice, index = draw(t, logits, rows), self.words[rows, t]
            log_probs = logits.log_softmax(-1).gather(1, index.unsqueeze(1)).squeeze(1)
            self.log_prob = self.log_prob + log_probs[mask[rows, t]].sum()
            if choice.straight_through is not None:
                choice = replace(choice, straight_through=channel.straight_through(index))
            if choice.full is not None:
                choice = replace(choice, full=self.full[rows, t])
            return replace(choice, index=index)

        return step


class FixedTokenRollouts(StepRollouts):
    """Rollouts with fixed tokens for one channel; captions of baselines are generated as usual."""

    def __init__(self, world: GradientWorld, channel: Channel, words: Tensor, full: Tensor) -> None:
        super().__init__(world.speaker, world.batch, seed=0)
        self.channel, self.fixed = channel, FixedTokens(channel, words, full)

    def _generate(self, channel: Channel) -> Message:
        return super()._generate(self.fixed if channel == self.channel else channel)


@dataclass(frozen=True)
class Outcomes:
    """Gradients of one step for all S outcomes."""

    gradients: Tensor  # (S, P)
    probability: Tensor  # (S,): probability of the tokens, given the distributions that pass
    full: Tensor  # (S,): number of captions, or tokens, that pass as distributions
    parts: Tensor  # (S,): number of all captions, or tokens

    def moments(self, rho: float, samples: int) -> tuple[Tensor, Tensor]:
        """Return the mean (P,) and the trace of the covariance () of the mean of `samples` independent gradients."""
        weights = self.probability * rho ** self.full.double() * (1 - rho) ** (self.parts - self.full).double()
        mean = weights @ self.gradients
        return mean, (weights @ self.gradients.square().sum(1) - mean.square().sum()) / samples


class Enumeration:
    """Exact moments of estimators of one score in one world.

    Estimators that differ only in ρ or in the number of samples share one enumeration.
    """

    def __init__(self, world: GradientWorld, score: Score) -> None:
        self.world, self.score = world, score
        self._outcomes: dict[Estimator, Outcomes] = {}

    def moments(self, estimator: Estimator) -> tuple[Tensor, Tensor]:
        """Return the exact mean (P,) and trace of the covariance () of an estimator that is `is_enumerable`."""
        assert is_enumerable(estimator), estimator
        channel = estimator.channel
        rho = channel.rho if isinstance(channel, PartialSampling) else 0.0
        single = replace(estimator, channel=_make_single_channel(channel))
        if single not in self._outcomes:
            self._outcomes[single] = self._enumerate(single)
        return self._outcomes[single].moments(rho, channel.samples)

    def _enumerate(self, estimator: Pathwise | ScoreFunction) -> Outcomes:
        channel = estimator.channel
        mix = channel.mix if isinstance(channel, PartialSampling) else None
        gradients, probabilities, counts = [], [], []
        for outcome in itertools.product(
            list(enumerate_mixtures(self.world.captions(), mix)), repeat=len(self.world.batch)
        ):
            words, full, parts = (torch.stack(each) for each in zip(*outcome, strict=True))
            rollouts = FixedTokenRollouts(self.world, channel, words, full)
            gradients.append(estimate_gradient(self.world, estimator, self.score, rollouts))
            probabilities.append(rollouts.fixed.log_prob.exp())
            counts.append(parts.sum(0))
        full_counts, part_counts = torch.stack(counts).T
        return Outcomes(torch.stack(gradients), torch.stack(probabilities), full_counts, part_counts)


def is_independent(estimator: Estimator) -> bool:
    """Return whether the estimator's gradient is a mean over independent samples of each image.

    All samples share the caption of a `SelfCritical` baseline, so that caption must not be random.
    """
    if isinstance(estimator, RelaxEstimator):
        return is_independent(estimator.inner)
    if isinstance(estimator, ScoreFunction):
        is_plain = estimator == ScoreFunction(estimator.channel, estimator.baseline)  # all other options have defaults
        baseline = estimator.baseline
        if type(baseline) is SelfCritical:
            return is_plain and baseline.channel in (Greedy(), TeacherForcing(requires_grad=False))
        return is_plain and type(baseline) is NoBaseline
    return isinstance(estimator, Pathwise) and estimator.reduction == "mean"


def is_enumerable(estimator: Estimator) -> TypeGuard[Pathwise | ScoreFunction]:
    """Return whether the estimator is `is_independent` and only its tokens and passing distributions are random."""
    if not isinstance(estimator, Pathwise | ScoreFunction) or not is_independent(estimator):
        return False
    channel = estimator.channel.inner if isinstance(estimator.channel, PartialSampling) else estimator.channel
    if isinstance(channel, StraightThrough):
        return type(channel).sample is StraightThrough.sample  # subclasses draw noise as well
    return type(channel) is Multinomial


def enumerate_mixtures(captions: Tensor, mix: str | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield each caption (T,) with each mask (T,) of passing tokens, and numbers (2,) of passing and of all parts.

    A passing token is a distribution in the channel's output.

    `mix` None: no token passes. "caption": the caption is one part. "token": each of its tokens is one part. Positions
    after a caption's end belong to no part.
    """
    for words, mask in zip(captions, make_caption_mask(captions), strict=True):
        if mix is None:
            yield words, torch.zeros_like(mask), torch.tensor([0, 0])
        elif mix == "caption":
            yield words, torch.zeros_like(mask), torch.tensor([0, 1])
            yield words, torch.ones_like(mask), torch.tensor([1, 1])
        else:
            length = int(mask.sum())
            for passing in itertools.product((False, True), repeat=length):
                full = torch.tensor([*passing, *[False] * (len(mask) - length)])
                yield words, full, torch.tensor([sum(passing), length])


def _make_single_channel(channel: Any) -> Any:
    """Return the channel with one sample and a common ρ, so that its variants share one enumeration."""
    if isinstance(channel, PartialSampling):
        return replace(channel, inner=_make_single_channel(channel.inner), rho=0.5)
    return replace(channel, samples=1)
