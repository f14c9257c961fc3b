"""RELAX (Grathwohl et al. 2018) per token: score-function gradients with a learned control variate.

Let z be log p plus Gumbel noise. The control c is evaluated at the relaxed token, a softmax of z with a learned
temperature. The gradient of its mean has two estimates: by the token's likelihood, and through the relaxed token. Their
difference has mean 0. Where c is close to the score, the difference contains most of the noise of the score's gradient.
The control of a token depends on its z and on the speaker's state before the token. It does not depend on later
tokens, since they depend on this token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.channels.straight_through import sample_arrival_times
from pipeline.estimators.surrogate import ScoreFunction, build_surrogate
from pipeline.models.critic import ControlVariate
from pipeline.protocols import Channel, Rollouts, Score
from pipeline.runtime import ranks
from pipeline.types import Message, Report


@dataclass(frozen=True)
class RelaxEstimator:
    """The estimator `inner` with a control variate, trained at the same time to lower the logit gradient's variance."""

    inner: ScoreFunction
    control: ControlVariate

    @property
    def channel(self) -> Channel:
        """Return the channel of the captions."""
        return self.inner.channel

    def surrogate(self, score: Score, rollouts: Rollouts) -> tuple[Tensor, Report]:
        """Return the speaker's loss plus the control's loss, and a report.

        The control's loss is the squared norm of the logit gradient, averaged over tokens.
        """
        message = rollouts.get_message(self.channel)
        value = score(message, rollouts.batch)
        advantage = self.inner.advantage(value.detach(), score, rollouts)
        loss, report = build_surrogate(value, message, advantage, self.inner.reduction)
        assert message.logits is not None
        assert message.states is not None
        logits = message.logits()
        index, states = message.tokens.flatten()[logits.positions], message.states().flatten(0, 1)[logits.positions]
        perturbed, times = self._perturb(logits.probabilities.detach(), logits.positions, index, message, rollouts)
        control_value, slope = self._evaluate_control(states, perturbed, times, index)
        token_advantage = advantage[logits.positions // message.tokens.shape[1]]
        valid = 1.0 if logits.valid is None else logits.valid
        count = ranks.all_sum(message.mask.sum())
        # the part that `build_surrogate` lacks: −c ∇ log p of the token + Σ slope ∇ log p
        weight = slope.detach().scatter_add(1, index.unsqueeze(1), -control_value.detach().unsqueeze(1))
        control_part = (weight * logits.probabilities).sum(1) - weight.sum(1) * logits.probabilities.logsumexp(1)
        # the whole gradient with respect to the logits; the control minimises its mean square
        residual = (token_advantage - control_value).unsqueeze(1)
        probabilities = logits.probabilities.detach().softmax(1)
        logit_gradient = (
            slope.scatter_add(1, index.unsqueeze(1), residual) - (slope.sum(1, keepdim=True) + residual) * probabilities
        )
        noise = (logit_gradient.square().sum(1) * valid).sum() / count
        report |= {"control": (control_value.detach() * valid).sum() * ranks.count_ranks() / count}
        report |= {"noise": noise.detach() * ranks.count_ranks()}
        return loss - (control_part * valid).sum() / count + noise, report

    def _perturb(
        self, logits: Tensor, positions: Tensor, index: Tensor, message: Message, rollouts: Rollouts
    ) -> tuple[Tensor, Tensor]:
        """Return z (M, V+1), log p plus Gumbel noise, largest at the token `index` (M,), and exp(−z) (M, V+1)."""
        batch_random = rollouts.random(f"noise of {self.channel.rng_key}")
        template = logits.new_empty(len(message), logits.shape[1])
        uniform = torch.cat(
            [batch_random.rand_like(template, width=message.samples) for _ in range(message.tokens.shape[1])], 1
        )
        times = sample_arrival_times(
            uniform.view(-1, logits.shape[1])[positions], logits.softmax(-1), index.unsqueeze(1)
        )
        return times.log().neg_(), times

    def _evaluate_control(
        self, states: Tensor, perturbed: Tensor, times: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the control's value c (M,) and ∂c/∂zᵢ · exp(zᵢ − z of the token) (M, V+1), with the control's graph.

        Given the token, ∂zᵢ/∂log pᵢ is 1 − exp(zᵢ − z of the token); without the token, it is 1. The same z serves
        both (the coupling of Tucker et al. 2017), so the product is the difference of the two gradients.
        """
        perturbed = perturbed.requires_grad_()
        control_value = self.control(states, perturbed)
        (slope,) = torch.autograd.grad(control_value.sum(), perturbed, create_graph=True)
        return control_value, slope * (times.gather(1, index.unsqueeze(1)) / times)
