"""RELAX is unbiased with any control variate: its mean equals the exact gradient of the oracle's world."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from expected_losses import compute_error_ratio
from linear_score import LinearScore
from test_oracle import IMAGES, world

from pipeline.channels.hard import Multinomial
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.gradients.measure import estimate_gradients
from pipeline.gradients.pretraining_world import train_control
from pipeline.models.critic import ControlVariate

__all__ = ["world"]


@pytest.fixture(scope="module")
def linear_score(world) -> LinearScore:
    """Return a score far from 0, which makes gradient estimates noisy."""
    return LinearScore(IMAGES, world.speaker.vocabulary, world.speaker.max_words, level=2.0)


@pytest.fixture
def control(world) -> ControlVariate:
    """Return a control variate with random weights, far from the score."""
    torch.manual_seed(2)
    variate = ControlVariate(world.speaker.hidden, world.speaker.vocabulary + 1, 8).double()
    for parameter in variate.parameters():
        torch.nn.init.normal_(parameter)
    return variate


@pytest.mark.parametrize("log_temperature", [-1.5, 0.0, 1.5])
def test_relax_is_unbiased_with_any_control(world, linear_score, control, log_temperature):
    torch.nn.init.constant_(control.log_temperature, log_temperature)
    truth = world.exact_gradient(linear_score)
    found = estimate_gradients(world, RelaxEstimator(ScoreFunction(Multinomial(40)), control), linear_score, 120)
    assert compute_error_ratio(found, truth) < 2.5
    assert compute_error_ratio(found, 1.4 * truth) > 5


def test_relax_without_its_pathwise_part_would_be_biased(world, linear_score, control, monkeypatch):
    evaluate_control = RelaxEstimator._evaluate_control

    def drop_pathwise_part(*arguments):
        expected, slope = evaluate_control(*arguments)
        return expected, torch.zeros_like(slope)

    monkeypatch.setattr(RelaxEstimator, "_evaluate_control", drop_pathwise_part)
    found = estimate_gradients(world, RelaxEstimator(ScoreFunction(Multinomial(40)), control), linear_score, 120)
    assert compute_error_ratio(found, world.exact_gradient(linear_score)) > 5


@pytest.mark.slow
def test_a_trained_control_lowers_the_variance(world, linear_score):
    torch.manual_seed(2)
    control = ControlVariate(world.speaker.hidden, world.speaker.vocabulary + 1, 16).double()
    plain = ScoreFunction(Multinomial(4))
    plain_variance, leave_one_out_variance = (
        estimate_gradients(world, estimator, linear_score, 100).var(0).sum()
        for estimator in (plain, replace(plain, baseline=LeaveOneOut()))
    )
    initial_variance = estimate_gradients(world, RelaxEstimator(plain, control), linear_score, 100).var(0).sum()
    torch.testing.assert_close(initial_variance, plain_variance)  # an untrained control variate is 0
    train_control(world, RelaxEstimator(ScoreFunction(Multinomial(16)), control), linear_score, 150)
    final_variance = estimate_gradients(world, RelaxEstimator(plain, control), linear_score, 100).var(0).sum()
    assert final_variance < 0.65 * plain_variance
    assert final_variance < leave_one_out_variance


def test_a_control_minimises_the_square_of_the_logit_gradient(world, linear_score, control):
    """The mean square of autograd's gradient of the loss equals the reported noise."""
    relax = RelaxEstimator(ScoreFunction(Multinomial(3)), control)
    rollouts = StepRollouts(world.speaker, world.batch, seed=5)
    message = rollouts.get_message(relax.channel)
    relaxed = message.logits()
    message = replace(message, logits=lambda: relaxed)
    rollouts._messages[relax.channel] = replace(
        message,
        log_probs=torch.zeros_like(message.log_probs)
        .flatten()
        .index_copy(
            0,
            relaxed.positions,
            relaxed.probabilities.log_softmax(1)
            .gather(1, message.tokens.flatten()[relaxed.positions].unsqueeze(1))
            .squeeze(1),
        )
        .view(message.tokens.shape),
    )
    loss, report = relax.surrogate(linear_score, rollouts)
    (slope,) = torch.autograd.grad(loss, relaxed.probabilities, retain_graph=True)
    count = message.mask.sum()
    torch.testing.assert_close((slope * count).square().sum() / count, report["noise"])
    assert all(g.abs().max() > 0 for g in torch.autograd.grad(loss, list(control.parameters())))
