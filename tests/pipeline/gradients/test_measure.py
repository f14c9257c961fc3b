"""Accuracies of drawn gradients whose bias and variance are known."""

import pytest
import torch
from linear_score import LinearScore

from pipeline.channels.hard import Multinomial
from pipeline.errors import UserError
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.gradients import measure
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import (
    compute_accuracy,
    estimate_accuracy,
    estimate_gradient,
    estimate_gradients,
    measure_step_time,
)

TRUTH = torch.tensor([3.0, 4.0], dtype=torch.float64)


def draw_gradients(rounds: int, shift: tuple[float, float], deviation: float, seed: int) -> torch.Tensor:
    noise = torch.randn(rounds, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return TRUTH + torch.tensor(shift) + deviation * noise


def test_exact_accuracies_by_hand():
    found = compute_accuracy(torch.tensor([3.0, 0.0]).double(), torch.tensor(50.0), TRUTH)
    assert (found.bias, found.bias_error, found.cosine) == pytest.approx((0.8, 0, 0.6))
    assert (found.length, found.variance) == pytest.approx((0.6, 2.0))


def test_the_bias_from_sampling_is_subtracted():
    """In each of 40 repetitions of 100 rounds, the bias is |(1.5, 2)| / 5 = .5 and the variance 2 · 4² / 25 = 1.28."""
    found = [estimate_accuracy(draw_gradients(100, (1.5, 2.0), 4.0, seed), TRUTH) for seed in range(40)]
    biases = torch.tensor([one.bias for one in found])
    assert float(biases.mean()) == pytest.approx(0.5, abs=0.04)
    assert sum(one.variance for one in found) / 40 == pytest.approx(1.28, rel=0.05)
    assert sum(one.bias_error for one in found) / 40 == pytest.approx(float(biases.std()), rel=0.35)


def test_an_unbiased_estimate_has_a_bias_within_its_error():
    found = [estimate_accuracy(draw_gradients(100, (0.0, 0.0), 4.0, seed), TRUTH) for seed in range(40)]
    plain = [float((draw_gradients(100, (0.0, 0.0), 4.0, seed).mean(0) - TRUTH).norm() / 5) for seed in range(40)]
    assert sum(one.bias for one in found) < 0.7 * sum(plain)
    assert sum(one.bias < 2 * one.bias_error for one in found) >= 36
    assert all(one.cosine <= 1 + 1e-12 for one in found)


def test_the_cosine_of_estimates_of_zero_is_zero():
    zeros = torch.zeros(2, 2, dtype=torch.float64)
    assert (estimate_accuracy(zeros, TRUTH).cosine, estimate_accuracy(zeros, TRUTH).bias) == (0, 1)
    assert compute_accuracy(zeros[0], torch.tensor(0.0), TRUTH).cosine == 0


def test_one_sampled_step_has_no_variance():
    with pytest.raises(UserError, match=r"rounds: expected 2 or more steps .*, got 1; raise --rounds"):
        estimate_accuracy(draw_gradients(1, (0.0, 0.0), 4.0, 0), TRUTH)


def test_rounds_are_independent_and_repeatable():
    world, score = draw_world(2, 2, 2, seed=0), LinearScore(2, 2, 2)
    found = estimate_gradients(world, ScoreFunction(Multinomial()), score, rounds=5)
    assert found.shape == (5, len(world.exact_gradient(score)))
    assert torch.equal(found, estimate_gradients(world, ScoreFunction(Multinomial()), score, rounds=5))
    assert not torch.equal(found[0], found[1])


def test_the_time_of_a_step_is_the_median_after_a_warm_up(monkeypatch):
    world, seconds, clock = draw_world(2, 2, 2, seed=0, dtype=torch.float32), iter((100.0, 2.0, 9.0, 1.0)), [0.0]

    def estimate_slowly(*arguments):
        clock[0] += next(seconds)
        return estimate_gradient(*arguments)

    monkeypatch.setattr(measure, "estimate_gradient", estimate_slowly)
    monkeypatch.setattr(measure.time, "process_time", lambda: clock[0])
    estimator = ScoreFunction(Multinomial())
    assert measure_step_time(world, estimator, lambda message, batch: message.tokens[:, 0].float(), 3) == 2
