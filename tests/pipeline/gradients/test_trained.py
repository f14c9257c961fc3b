"""Sampled gradients of `measure_trained`, against exact ones where captions can be enumerated."""

from __future__ import annotations

import pytest
import torch

from pipeline.errors import UserError
from pipeline.gradients.enumerated import Enumeration
from pipeline.gradients.estimator_candidates import ESTIMATORS
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import compute_accuracy
from pipeline.gradients.observe import ImageHinge
from pipeline.gradients.trained import GradientMeans, compare_gradient_means, measure_trained


@pytest.mark.slow
def test_biases_are_the_exact_ones_within_their_errors():
    world = draw_world(2, 3, 2, 5)
    names = ("ST-Multinomial", "REINFORCE, leave one out (RLOO)", "PSST-Multinomial")
    candidates = [one for one in ESTIMATORS if one.name in names and one.settings.get("rho") in (None, 0.0, 1.0)]
    texts: list[str] = []
    found = measure_trained(world, 1.0, candidates, texts.append, captions=8000, steps=120)
    rows = {(row["name"], *row["settings"].values()): row for row in found["rows"]}
    assert list(rows) == [(names[1],), (names[0],), (names[2], 1.0)]  # ρ = 0 is straight-through
    assert (found["captions"], found["steps"], len(texts)) == (8320, 120, 4)
    score = ImageHinge(world.listener, 1.0)
    enumeration, truth = Enumeration(world, score), world.exact_gradient(score)
    assert 0 < found["error"] < 0.2
    for one in candidates:
        row = rows.get((one.name, *one.settings.values()))
        if row is None:
            continue
        if one.name.startswith("REINFORCE"):
            assert row["bias"] < 3 * row["bias_error"]
            assert row["cosine"] > 0.95
        else:
            exact = compute_accuracy(*enumeration.moments(one.build(5, world.speaker)), truth)
            assert row["bias"] == pytest.approx(exact.bias, abs=4 * row["bias_error"])
            assert row["cosine"] == pytest.approx(exact.cosine, abs=0.1)
            assert row["variance"] == pytest.approx(exact.variance, rel=0.6)  # estimated from twenty parts


def test_the_sampling_errors_of_both_gradients_are_subtracted():
    torch.manual_seed(0)
    true, shift = torch.zeros(400), torch.zeros(400)
    true[0], shift[1] = 2.0, 1.0  # a bias of one half

    def make_means(mean: torch.Tensor, noise: float, steps: int) -> GradientMeans:
        return GradientMeans(mean + noise / steps**0.5 * torch.randn(20, 400), steps)

    found = compare_gradient_means(make_means(true + shift, 0.5, 4), make_means(true, 0.3, 4))
    assert found.bias == pytest.approx(0.5, abs=3 * found.bias_error)
    assert found.bias_error < 0.1
    assert found.length == pytest.approx(5**0.5 / 2, abs=0.1)
    assert found.cosine == pytest.approx(2 / 5**0.5, abs=0.05)
    assert found.variance == pytest.approx(400 * 0.25 / 4, rel=0.15)
    unbiased = compare_gradient_means(make_means(true, 0.5, 4), make_means(true, 0.3, 4))
    assert unbiased.bias < 3 * unbiased.bias_error


def test_subtracted_sampling_errors_by_hand():
    """The squared errors of the means are 4 and 5, so that the truth's squared length is 9 − 5."""
    truth, mean = torch.tensor([3.0, 0, 0, 0]), torch.tensor([3.0, 4, 0, 0])
    noise, truth_noise = torch.tensor([0.0, 0, 2, 0]), torch.tensor([0.0, 0, 0, 5**0.5])
    found = compare_gradient_means(
        GradientMeans(torch.stack([mean + noise, mean - noise]), 3),
        GradientMeans(torch.stack([truth + truth_noise, truth - truth_noise]), 3),
    )
    assert found.bias == pytest.approx(((16 - 4 - 5) / 4) ** 0.5)
    assert found.length == pytest.approx(((25 - 4) / 4) ** 0.5)
    assert found.cosine == pytest.approx(9 / (21**0.5 * 2))
    assert found.variance == pytest.approx(4 * 2 * 3 / 4)


def test_a_mean_of_zero_has_the_cosine_zero():
    torch.manual_seed(0)
    truth = GradientMeans(torch.ones(20, 4) + 0.01 * torch.randn(20, 4), 1)
    found = compare_gradient_means(GradientMeans(torch.zeros(20, 4), 1), truth)
    assert (found.bias, found.cosine, found.length) == (pytest.approx(1, abs=1e-3), 0, 0)


def test_a_reference_gradient_of_zero_is_reported():
    """The hinge is 0 in a world of one image, because it has no other image to compare."""
    candidates = [one for one in ESTIMATORS if one.name == "ST-Multinomial"]
    with pytest.raises(
        UserError, match=r"--captions: expected a gradient that differs from 0, .* 320 captions of 1 im"
    ):
        measure_trained(draw_world(1, 3, 2, 5), 1.0, candidates, lambda line: None, captions=100, steps=20)


@pytest.mark.parametrize(("name", "rhos"), [("PSST-Gumbel-Rao", 5), ("PSST-Multinomial", 1)])
def test_candidates_that_are_not_measured_are_reported_before_the_reference_gradient(name, rhos):
    candidates, lines = [one for one in ESTIMATORS if one.name == name][:rhos], list[str]()  # the first has ρ = 0
    with pytest.raises(UserError, match=f"--only: expected .* got only {name}; choose another estimator"):
        measure_trained(draw_world(2, 3, 2, 5), 1.0, candidates, lines.append, captions=100, steps=20)
    assert not lines
