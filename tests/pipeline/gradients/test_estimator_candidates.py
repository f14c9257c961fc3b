"""Each candidate of ESTIMATORS can be measured."""

from __future__ import annotations

import pytest
import torch

from pipeline.gradients.estimator_candidates import ESTIMATORS
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import estimate_gradients
from pipeline.gradients.observe import BOTH_SCORES
from pipeline.gradients.pretraining_world import pretrain_world
from pipeline.scores.discriminability import Hinge

ONE_PER_NAME = [c for c in ESTIMATORS if dict(c.settings) in ({}, {"rho": 0.5}, {"temperature": 1.0})]


def test_names_of_candidates_are_unique():
    names = [(candidate.name, *candidate.settings.items()) for candidate in ESTIMATORS]
    assert len(set(names)) == len(names)
    assert {candidate.name for candidate in ONE_PER_NAME} == {candidate.name for candidate in ESTIMATORS}
    assert set(BOTH_SCORES) <= {candidate.name for candidate in ESTIMATORS}


@pytest.mark.parametrize(
    "candidate",
    [c if c in ONE_PER_NAME else pytest.param(c, marks=pytest.mark.slow) for c in ESTIMATORS],
    ids=lambda c: " ".join([c.name, *map(str, c.settings.values())]),
)
def test_a_candidate_estimates_a_gradient(candidate):
    world = draw_world(images=2, vocabulary=2, max_words=2, seed=1)
    estimator = candidate.build(candidate.min_samples, world.speaker)
    assert estimator.channel.samples == candidate.min_samples
    found = estimate_gradients(world, estimator, Hinge(world.listener, 1.0), rounds=4)
    assert torch.isfinite(found).all()
    assert found.abs().max() > 0


@pytest.fixture(scope="module")
def gradient_problem():
    """Return a pretrained world, a score, and the exact gradient."""
    world = pretrain_world(2, 40, seed=1)
    score = Hinge(world.listener, 1.0)
    return world, score, world.exact_gradient(score)


@pytest.mark.parametrize("candidate", ONE_PER_NAME, ids=lambda c: c.name)
def test_a_candidates_mean_has_the_direction_of_the_exact_gradient(gradient_problem, candidate):
    world, score, truth = gradient_problem
    found = estimate_gradients(world, candidate.build(32, world.speaker), score, rounds=16).mean(0)
    assert float(torch.cosine_similarity(found, truth, dim=0)) > 0.5
