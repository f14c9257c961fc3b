"""Estimators, baselines and scalings since PSST against the exact gradient of the oracle's world."""

from __future__ import annotations

import pytest
import torch
from test_oracle import IMAGES, VOCABULARY, distance, estimates, exact, flat, weights, world

from pipeline.baselines import ByBatch, ByGroup, GroupMean, LeaveOneOut
from pipeline.channels import Multinomial, StraightThrough
from pipeline.estimators import Pathwise, ScoreFunction
from pipeline.models.speaker import Speaker
from pipeline.straight_through import ReinMax

__all__ = ["world"]


def cosine(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Of the mean estimate with the truth."""
    return float(torch.cosine_similarity(found.mean(0), truth, dim=0))


@pytest.mark.parametrize(("samples", "rounds"), [(2, 400), (100, 80)])
def test_leave_one_out_is_unbiased(world, samples, rounds):
    found = estimates(world, ScoreFunction(Multinomial(samples), LeaveOneOut()), rounds)
    truth = exact(world)
    assert distance(found, truth) < 2.5
    assert distance(found, 2 * truth) > 2 * distance(found, truth)


def test_the_mean_of_a_group_shrinks_the_gradient_and_its_standard_deviation_turns_it(world):
    """Measured with four samples: the mean alone, bias .24 of the gradient's norm, its direction kept; divided by the
    group's standard deviation, .65, and of another direction.
    """
    truth = exact(world)
    alone = estimates(world, ScoreFunction(Multinomial(4), GroupMean()), 200)
    assert distance(alone / 0.75, truth) < 2.5 < distance(alone, truth)
    scaled = estimates(world, ScoreFunction(Multinomial(4), GroupMean(), scaling=ByGroup()), 200)
    scaled = scaled * (truth.norm() / scaled.mean(0).norm())
    assert distance(scaled, truth) > 2.5


def test_the_standard_deviation_of_the_batch_keeps_the_direction(world):
    truth = exact(world)
    found = estimates(world, ScoreFunction(Multinomial(100), LeaveOneOut(), scaling=ByBatch()), 80)
    assert cosine(found, truth) > 0.99
    assert float(found.mean(0).norm() / truth.norm()) < 0.7


class Squares:
    """A score that is quadratic in the one word of a caption."""

    differentiable = True

    def __init__(self) -> None:
        shape = (IMAGES, VOCABULARY + 1, VOCABULARY + 1)
        self.table = 2 * torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def __call__(self, message, batch):
        said = message.rows(VOCABULARY)[:, 0]
        return torch.einsum("nij,ni,nj->n", self.table[message.images], said, said)


@pytest.fixture(scope="module")
def one_word(world):
    """A world of one word a caption, and the exact gradient in it."""
    _, batch, _ = world
    torch.manual_seed(3)
    speaker = Speaker(VOCABULARY, 3, words=4, hidden=4, attention=3, dropout=0.0, max_words=1).double()
    with torch.no_grad():
        speaker.logit.weight *= 3
    score, told = Squares(), batch.to("cpu")
    mean = torch.zeros((), dtype=torch.float64)
    for word in range(VOCABULARY + 1):
        told.captions[:] = word
        p = speaker.read(told).log_probs[:, 0].exp()
        mean = mean + (p * score.table[:, word, word]).sum() / IMAGES
    return (speaker, batch, score), flat(torch.autograd.grad(mean, weights(speaker), allow_unused=True))


def test_reinmax_is_unbiased_for_a_quadratic_score_of_one_word(one_word):
    world, truth = one_word
    reinmax, straight = (
        estimates(world, Pathwise(channel(samples=100, ending="soft")), 80) for channel in (ReinMax, StraightThrough)
    )
    assert float(truth.norm()) > 0.1
    assert distance(reinmax, truth) < 2.5
    assert distance(straight, truth) > 5
