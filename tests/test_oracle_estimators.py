"""Leave-one-out, group and batch scaling, and ReinMax against the exact gradient of the oracle's world."""

import pytest
import torch
from expected_losses import compute_error_ratio
from test_oracle import IMAGES, VOCABULARY, linear_score, world

from pipeline.channels.hard import Multinomial
from pipeline.channels.straight_through import ReinMax, StraightThrough
from pipeline.estimators.baselines import BatchStd, GroupMean, GroupStd, LeaveOneOut
from pipeline.estimators.surrogate import Pathwise, ScoreFunction
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import estimate_gradients

__all__ = ["linear_score", "world"]


def compute_cosine(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the cosine of the mean estimate and the truth."""
    return float(torch.cosine_similarity(found.mean(0), truth, dim=0))


@pytest.mark.parametrize(("samples", "rounds"), [(2, 400), (100, 80)])
def test_leave_one_out_is_unbiased(world, linear_score, samples, rounds):
    found = estimate_gradients(world, ScoreFunction(Multinomial(samples), LeaveOneOut()), linear_score, rounds)
    truth = world.exact_gradient(linear_score)
    assert compute_error_ratio(found, truth) < 2.5
    assert compute_error_ratio(found, 2 * truth) > 2 * compute_error_ratio(found, truth)


def test_the_group_mean_shrinks_the_gradient_and_the_group_deviation_changes_its_direction(world, linear_score):
    """With four samples, the group mean as baseline multiplies the gradient by 3/4 and keeps its direction.

    Division by the group's standard deviation gives another direction.
    """
    truth = world.exact_gradient(linear_score)
    centred = estimate_gradients(world, ScoreFunction(Multinomial(4), GroupMean()), linear_score, 200)
    assert compute_error_ratio(centred / 0.75, truth) < 2.5 < compute_error_ratio(centred, truth)
    scaled = estimate_gradients(
        world, ScoreFunction(Multinomial(4), GroupMean(), scaling=GroupStd()), linear_score, 200
    )
    scaled = scaled * (truth.norm() / scaled.mean(0).norm())
    assert compute_error_ratio(scaled, truth) > 2.5


def test_the_standard_deviation_of_the_batch_keeps_the_direction(world, linear_score):
    truth = world.exact_gradient(linear_score)
    found = estimate_gradients(
        world, ScoreFunction(Multinomial(100), LeaveOneOut(), scaling=BatchStd()), linear_score, 80
    )
    assert compute_cosine(found, truth) > 0.99
    assert float(found.mean(0).norm() / truth.norm()) < 0.7


class QuadraticScore:
    """A quadratic score of captions of one word."""

    differentiable = True

    def __init__(self) -> None:
        shape = (IMAGES, VOCABULARY + 1, VOCABULARY + 1)
        self.table = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def __call__(self, message, batch):
        distributions = message.distributions(VOCABULARY)[:, 0].to(self.table.dtype)
        return torch.einsum("nij,ni,nj->n", self.table[message.images], distributions, distributions)


def test_reinmax_is_unbiased_for_a_quadratic_score_of_one_word():
    world, score = draw_world(IMAGES, VOCABULARY, 1, seed=3), QuadraticScore()
    truth = world.exact_gradient(score)
    reinmax, straight_through = (
        estimate_gradients(world, Pathwise(channel(samples=100, eos_gradient="soft")), score, 80)
        for channel in (ReinMax, StraightThrough)
    )
    assert float(truth.norm()) > 0.1
    assert compute_error_ratio(reinmax, truth) < 2.5
    assert compute_error_ratio(straight_through, truth) > 5
