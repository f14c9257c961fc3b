"""RELAX (Grathwohl et al. 2018), word by word: score function gradients with a control variate that is learned.

What a control c says of a word, once it is perturbed with Gumbel noise z and relaxed, has a gradient that is known in
two ways: by the likelihood of the word, and through the relaxed word. Their difference has the mean 0, and where c is
like the score, most of the noise of the score's own gradient. Each word has a control of its own, which knows the
speaker's state before it and nothing that comes later: what comes later depends on the word.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.channels.straight_through import arrivals
from pipeline.estimators.surrogate import ScoreFunction, surrogate
from pipeline.models.critic import Control
from pipeline.protocols import Channel, Rollouts, Score
from pipeline.runtime import ranks
from pipeline.types import Message, Report


@dataclass(frozen=True)
class Relax:
    """`inner` with a control, which learns at the same time to lower the variance of the gradient of the logits."""

    inner: ScoreFunction
    control: Control

    @property
    def channel(self) -> Channel:
        return self.inner.channel

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        """The sum of two losses: the speaker's, and the control's, the mean square over words of that gradient."""
        message = rollouts.of(self.channel)
        value = score(message, rollouts.batch)
        advantage = self.inner.advantage(value.detach(), score, rollouts)
        loss, report = surrogate(value, message, advantage, self.inner.reduction)
        assert message.logits is not None
        assert message.states is not None
        said = message.logits()
        index, states = message.tokens.flatten()[said.at], message.states().flatten(0, 1)[said.at]
        perturbed, times = self._perturbed(said.soft.detach(), said.at, index, message, rollouts)
        expected, slope = self._controlled(states, perturbed, times, index)
        worth = advantage[said.at // message.tokens.shape[1]]
        there = 1.0 if said.there is None else said.there
        count = ranks.total(message.mask.sum())
        # (f − c) ∇ log p of the word + Σ slope ∇ log p: what is not in `surrogate` yet
        weight = slope.detach().scatter_add(1, index.unsqueeze(1), -expected.detach().unsqueeze(1))
        more = (weight * said.soft).sum(1) - weight.sum(1) * said.soft.logsumexp(1)
        # the same gradient, whole, as the control's to make small
        rest = (worth - expected).unsqueeze(1)
        shares = said.soft.detach().softmax(1)
        whole = slope.scatter_add(1, index.unsqueeze(1), rest) - (slope.sum(1, keepdim=True) + rest) * shares
        noise = (whole.square().sum(1) * there).sum() / count
        report |= {"control": (expected.detach() * there).sum() * ranks.size() / count}
        report |= {"noise": noise.detach() * ranks.size()}
        return loss - (more * there).sum() / count + noise, report

    def _perturbed(
        self, logits: Tensor, at: Tensor, index: Tensor, message: Message, rollouts: Rollouts
    ) -> tuple[Tensor, Tensor]:
        """(M, V+1) each: log p + Gumbel noise of which the word `index` (M,) is the largest, and e to minus that."""
        numbers = rollouts.numbers(f"noise of {self.channel.stream}")
        step = logits.new_empty(len(message), logits.shape[1])
        uniform = torch.cat([numbers.like(step, width=message.samples) for _ in range(message.tokens.shape[1])], 1)
        times = arrivals(uniform.view(-1, logits.shape[1])[at], logits.softmax(-1), index.unsqueeze(1))
        return times.log().neg_(), times

    def _controlled(self, states: Tensor, perturbed: Tensor, times: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """What the control says (M,), and ∂c/∂zᵢ · exp(zᵢ − z of the word) (M, V+1); with a graph for the control.

        Given the word, zᵢ moves with log pᵢ by 1 − exp(zᵢ − z of the word); not given the word, by 1. One z serves as
        both (the coupling of Tucker et al. 2017), so this is the difference of the two gradients.
        """
        perturbed = perturbed.requires_grad_()
        expected = self.control(states, perturbed)
        (slope,) = torch.autograd.grad(expected.sum(), perturbed, create_graph=True)
        return expected, slope * (times.gather(1, index.unsqueeze(1)) / times)
