"""The exact mean and variance of an estimator, by running it once on every outcome of its channel.

What is random in a channel is which words it draws and which captions or words pass as distributions. A `Given` copy
of the channel is given both, is otherwise the same, and records the probability of the words. The probability of what
passes is a polynomial in ρ, so one enumeration serves all ρ. Where K captions per image are independent, their mean has
the mean of one and a K-th of its variance.

Continuous noise (Gumbel) and baselines that see other samples are not enumerated but sampled (measure.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import StraightThrough
from pipeline.channels.words import Choose, Multinomial
from pipeline.estimators.baselines import SelfCritical
from pipeline.estimators.relax import Relax
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import NoBaseline, Pathwise, ScoreFunction
from pipeline.observatory.measure import estimate
from pipeline.observatory.world import World
from pipeline.protocols import Channel, Estimator, Score
from pipeline.types import Batch, Message, Symbol, caption_mask


class Given:
    """`inner` with given words (N, T); `full` (N, T) says which of them pass as distributions."""

    def __init__(self, inner: Any, words: Tensor, full: Tensor) -> None:
        self.inner, self.words, self.full = inner, words, full
        self.log_prob = torch.zeros((), dtype=torch.float64)  # of all words, once they are chosen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        draw, alive = self.inner.open(batch, vocabulary, rng), caption_mask(self.words)
        through = getattr(self.inner, "inner", self.inner)

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            symbol, index = draw(t, logits, rows), self.words[rows, t]
            likely = logits.log_softmax(-1).gather(1, index.unsqueeze(1)).squeeze(1)
            self.log_prob = self.log_prob + likely[alive[rows, t]].sum()
            if symbol.through is not None:
                symbol = replace(symbol, through=through.through(index))
            if symbol.full is not None:
                symbol = replace(symbol, full=self.full[rows, t])
            return replace(symbol, index=index)

        return step


class GivenRollouts(StepRollouts):
    """Rollouts whose words are given for one channel; baselines' captions are sampled as usual."""

    def __init__(self, world: World, channel: Channel, words: Tensor, full: Tensor) -> None:
        super().__init__(world.speaker, world.batch, seed=0)
        self.channel, self.given = channel, Given(channel, words, full)

    def _speak(self, channel: Channel) -> Message:
        return super()._speak(self.given if channel == self.channel else channel)


@dataclass(frozen=True)
class Outcomes:
    """The gradients of one step for all S outcomes."""

    gradients: Tensor  # (S, P)
    likely: Tensor  # (S,): the probability of the words, given what passes as distributions
    full: Tensor  # (S,): how many captions, or words, pass as distributions …
    parts: Tensor  # (S,): … of how many

    def moments(self, rho: float, samples: int) -> tuple[Tensor, Tensor]:
        """The mean (P,) and the trace of the covariance () of the mean of `samples` independent gradients."""
        share = self.likely * rho ** self.full.double() * (1 - rho) ** (self.parts - self.full).double()
        mean = share @ self.gradients
        return mean, (share @ self.gradients.square().sum(1) - mean.square().sum()) / samples


class Enumeration:
    """Exact moments of estimators of one score in one world; each channel is enumerated once."""

    def __init__(self, world: World, score: Score) -> None:
        self.world, self.score = world, score
        self._found: dict[Estimator, Outcomes] = {}

    def moments(self, estimator: Estimator) -> tuple[Tensor, Tensor]:
        """The exact mean (P,) and trace of the covariance () of an estimator that is `enumerable`."""
        assert enumerable(estimator), estimator
        channel = estimator.channel  # type: ignore[attr-defined]
        rho = channel.rho if isinstance(channel, PartialSampling) else 0.0
        single = replace(estimator, channel=_single(channel))  # type: ignore[type-var]
        if single not in self._found:
            self._found[single] = self._enumerate(single)
        return self._found[single].moments(rho, channel.samples)

    def _enumerate(self, estimator: Any) -> Outcomes:
        channel = estimator.channel
        mix = channel.mix if isinstance(channel, PartialSampling) else None
        gradients, likely, counts = [], [], []
        for joint in itertools.product(list(ways(self.world.captions(), mix)), repeat=len(self.world.batch)):
            words, full, parts = (torch.stack(each) for each in zip(*joint, strict=True))
            rollouts = GivenRollouts(self.world, channel, words, full)
            gradients.append(estimate(self.world, estimator, self.score, rollouts))
            likely.append(rollouts.given.log_prob.exp())
            counts.append(parts.sum(0))
        passing, all_ = torch.stack(counts).T
        return Outcomes(torch.stack(gradients), torch.stack(likely), passing, all_)


def independent(estimator: Estimator) -> bool:
    """Whether its gradient is a mean over independent samples of each image."""
    if isinstance(estimator, Relax):
        return independent(estimator.inner)
    if isinstance(estimator, ScoreFunction):
        plain = estimator == ScoreFunction(estimator.channel, estimator.baseline)  # with no other option
        return plain and type(estimator.baseline) in (NoBaseline, SelfCritical)
    return isinstance(estimator, Pathwise) and estimator.reduction == "mean"


def enumerable(estimator: Estimator) -> bool:
    """Whether, moreover, only words, and what passes as distributions, are random."""
    if not isinstance(estimator, Pathwise | ScoreFunction) or not independent(estimator):
        return False
    channel = estimator.channel.inner if isinstance(estimator.channel, PartialSampling) else estimator.channel
    if isinstance(channel, StraightThrough):
        return type(channel).sample is StraightThrough.sample  # others draw noise as well
    return type(channel) is Multinomial


def ways(captions: Tensor, mix: str | None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Each caption (T,), which of its words pass as distributions (T,), and how many parts do, of how many (2,).

    `mix` None: nothing does; "caption": a caption is one part; "token": each of its words is one. Positions after a
    caption's end belong to no part.
    """
    for words, alive in zip(captions, caption_mask(captions), strict=True):
        if mix is None:
            yield words, torch.zeros_like(alive), torch.tensor([0, 0])
        elif mix == "caption":
            yield words, torch.zeros_like(alive), torch.tensor([0, 1])
            yield words, torch.ones_like(alive), torch.tensor([1, 1])
        else:
            length = int(alive.sum())
            for choice in itertools.product((False, True), repeat=length):
                full = torch.tensor([*choice, *[False] * (len(alive) - length)])
                yield words, full, torch.tensor([sum(choice), length])


def _single(channel: Any) -> Any:
    """The channel with one sample, and the same ρ for all."""
    if isinstance(channel, PartialSampling):
        return replace(channel, inner=_single(channel.inner), rho=0.5)
    return replace(channel, samples=1)
