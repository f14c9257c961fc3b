"""RELAX's gradients of the speaker and of the control variate equal those that autograd computes token by token."""

from dataclasses import replace

import pytest
import torch
from expected_losses import compute_gradients

from pipeline.channels.hard import Multinomial
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import NoBaseline, ScoreFunction
from pipeline.models.critic import ControlVariate
from pipeline.scores.naturalness import CiderScore


@pytest.fixture
def batch(toy):
    toy_batch = toy.batch()
    return replace(toy_batch, pooled=toy_batch.pooled.double(), regions=toy_batch.regions.double())


@pytest.fixture
def speaker(toy):
    return toy.agents().speaker.double()


@pytest.fixture
def control(speaker) -> ControlVariate:
    """Return a control variate whose values are far from the score."""
    torch.manual_seed(2)
    variate = ControlVariate(speaker.hidden, speaker.vocabulary + 1, 8).double()
    for parameter in variate.parameters():
        torch.nn.init.normal_(parameter)
    return variate


def compute_losses(score, rollouts: StepRollouts, samples: int, control: ControlVariate, baseline) -> tuple:
    """Return the speaker's loss, the control variate's loss, and the mean of the control variate over tokens."""
    message = rollouts.get_message(Multinomial(samples))
    value = score(message, rollouts.batch)
    groups = value.view(-1, samples)
    expected = {"none": 0 * groups, "RLOO": (groups.sum(1, keepdim=True) - groups) / max(1, samples - 1)}[baseline]
    advantage = (groups - expected).flatten()
    count, words = int(message.mask.sum()), rollouts.speaker.vocabulary + 1
    batch_random = rollouts.random(f"noise of {Multinomial(samples).rng_key}")
    template = torch.zeros(len(message), words, dtype=torch.float64)
    uniform = torch.stack([batch_random.rand_like(template, width=samples) for _ in range(message.tokens.shape[1])], 1)
    relaxed, states = message.logits(), message.states()
    logits = torch.zeros(message.tokens.numel(), words, dtype=torch.float64)
    logits = logits.index_copy(0, relaxed.positions, relaxed.probabilities).view(*message.tokens.shape, words)
    speaker_loss, control_loss, mean = torch.zeros(()), torch.zeros(()), 0.0
    for n, t in message.mask.nonzero().tolist():
        word = int(message.tokens[n, t])
        log_p = logits[n, t].log_softmax(0)
        arrival = -torch.log1p(-uniform[n, t])
        later = arrival / log_p.exp() + arrival[word]  # on condition that `word` comes first
        conditional = -torch.where(torch.arange(words) == word, arrival[word], later).log()
        # the same value, with the derivative of unconditional noise
        unconditional = conditional.detach() + log_p - log_p.detach()
        control_value = control(states[n, t][None], conditional.detach()[None])[0]
        difference = (
            control(states[n, t][None], unconditional[None])[0] - control(states[n, t][None], conditional[None])[0]
        )
        mean += float(control_value.detach()) / count
        (logit_gradient,) = torch.autograd.grad(
            (advantage[n] - control_value) * log_p[word] + difference, logits, create_graph=True, retain_graph=True
        )
        speaker_term = (advantage[n] - control_value.detach()) * log_p[word] + difference
        speaker_loss = speaker_loss - speaker_term / count
        control_loss = control_loss + logit_gradient.square().sum() / count
    return speaker_loss, control_loss, mean


@pytest.mark.parametrize(("samples", "baseline"), [(1, "none"), (3, "RLOO")])
def test_the_gradients_of_both_networks_word_by_word(toy, batch, speaker, control, samples, baseline):
    inner_baseline = NoBaseline() if baseline == "none" else LeaveOneOut()
    relax = RelaxEstimator(ScoreFunction(Multinomial(samples), inner_baseline), control)
    score, rollouts = CiderScore(toy.cider), StepRollouts(speaker, batch, seed=5)
    loss, report = relax.surrogate(score, rollouts)
    speaker_loss, control_loss, mean = compute_losses(
        score, StepRollouts(speaker, batch, seed=5), samples, control, baseline
    )
    assert float(control_loss.detach()) > 0.1
    for agent, expectation in ((speaker, speaker_loss), (control, control_loss)):
        pairs = zip(compute_gradients(loss, agent), compute_gradients(expectation, agent), strict=True)
        for found, expected in pairs:
            torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-6)
    assert all(gradient.any() for gradient in compute_gradients(loss, control))
    torch.testing.assert_close(report["noise"], control_loss.detach())
    assert float(report["control"]) == pytest.approx(mean)


def test_perturbed_logits_are_largest_at_the_token_with_fresh_noise_at_every_token(toy, batch, speaker, control):
    relax, rollouts = RelaxEstimator(ScoreFunction(Multinomial(2)), control), StepRollouts(speaker, batch, seed=5)
    assert relax.channel == Multinomial(2)
    message = rollouts.get_message(Multinomial(2))
    logits = message.logits()
    index = message.tokens.flatten()[logits.positions]
    perturbed, times = relax._perturb(logits.probabilities.detach(), logits.positions, index, message, rollouts)
    assert torch.equal(perturbed.argmax(1), index)
    torch.testing.assert_close(perturbed, -times.log())
    shortest = times.gather(1, index.unsqueeze(1)).flatten()
    assert len(shortest.unique()) == len(shortest)
    torch.testing.assert_close(shortest.mean(), torch.tensor(1.0).double(), atol=0.5, rtol=0)  # exponential, of rate 1
