"""Enumerated means and variances against sums by hand and against sampling, and their consequences for PSST."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from linear_score import LinearScore

from pipeline.channels.hard import Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import Gumbel, StraightThrough
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.estimators.baselines import CentredBaseline, SelfCritical
from pipeline.estimators.surrogate import Detached, NoBaseline, Pathwise, ScoreFunction
from pipeline.gradients.enumerated import Enumeration, enumerate_mixtures, is_enumerable, is_independent
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import compute_accuracy, estimate_gradients
from pipeline.gradients.observe import ImageHinge
from pipeline.gradients.pretraining_world import pretrain_world
from pipeline.scores.discriminability import Hinge


def make_psst(rho, mix="caption", feed="distribution", samples=1, eos_gradient="soft"):
    return Pathwise(PartialSampling(StraightThrough(samples, eos_gradient), rho, mix, feed))


@pytest.fixture(scope="module")
def single_image():
    """Return an enumeration of one image with 7 captions.

    PSST has 14 outcomes if it mixes whole captions, and 26 if it mixes tokens.
    """
    return Enumeration(draw_world(images=1, vocabulary=2, max_words=2, seed=4), LinearScore(1, 2, 2))


@pytest.fixture(scope="module")
def trained_world():
    return pretrain_world(images=2, epochs=20, seed=1)


def test_the_score_function_by_hand(single_image):
    """The mean is Σ p r ∇log p. With K samples, the variance is (Σ p r² |∇log p|² − |mean|²) / K."""
    world, values = single_image.world, single_image.score.table[0]
    log_probs, captions = world.log_probs()[0], world.captions()
    slopes = torch.stack([world.gradient(world.log_probs()[0, n]) for n in range(len(captions))])
    p, r = log_probs.exp().detach(), values[captions[:, 0], captions[:, 1]]
    mean = (p * r) @ slopes
    variance = (p * r**2) @ slopes.square().sum(1) - mean.square().sum()
    for samples in (1, 5):
        found = single_image.moments(ScoreFunction(Multinomial(samples)))
        torch.testing.assert_close(found[0], mean)
        torch.testing.assert_close(found[1], variance / samples)
    torch.testing.assert_close(world.exact_gradient(single_image.score), mean)


def test_one_word_of_a_linear_score_goes_straight_through_without_bias_or_noise():
    world = draw_world(images=1, vocabulary=2, max_words=1, seed=0)
    enumeration, truth = Enumeration(world, LinearScore(1, 2, 1)), world.exact_gradient(LinearScore(1, 2, 1))
    found = compute_accuracy(*enumeration.moments(Pathwise(StraightThrough(1, "soft"))), truth)
    assert found.bias == pytest.approx(0, abs=1e-12)
    assert found.variance == pytest.approx(0, abs=1e-12)
    assert compute_accuracy(*enumeration.moments(ScoreFunction(Multinomial())), truth).variance > 0.1


@pytest.mark.parametrize(
    ("mix", "feed"), [("caption", "distribution"), ("caption", "sample"), ("token", "distribution")]
)
def test_probabilities_of_all_outcomes_sum_to_one(single_image, mix, feed):
    estimator = make_psst(0.3, mix, feed)
    single_image.moments(estimator)
    outcomes = single_image._outcomes[make_psst(0.5, mix, feed)]
    for rho in (0.0, 0.3, 1.0):
        share = (
            outcomes.probability
            * rho ** outcomes.full.double()
            * (1 - rho) ** (outcomes.parts - outcomes.full).double()
        )
        assert float(share.sum()) == pytest.approx(1, abs=1e-12)
    assert len(outcomes.probability) == {"caption": 14, "token": 2 + 2 * 4 + 4 * 4}[mix]


def test_all_distinct_mixture_patterns_of_a_caption():
    captions = torch.tensor([[1, 0, 0]])
    assert [full.tolist() for _, full, _ in enumerate_mixtures(captions, "token")] == [
        [False, False, False], [False, True, False], [True, False, False], [True, True, False],
    ]  # fmt: skip
    assert [parts.tolist() for _, _, parts in enumerate_mixtures(captions, "caption")] == [[0, 1], [1, 1]]
    assert [parts.tolist() for _, _, parts in enumerate_mixtures(captions, None)] == [[0, 0]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        ScoreFunction(Multinomial(2), SelfCritical()),
        Pathwise(StraightThrough(2)),
        make_psst(0.4, samples=2),
        make_psst(0.4, "token", samples=2, eos_gradient="constant"),
        make_psst(0.4, "caption", "sample", samples=2),
    ],
    ids=["score function", "straight-through", "psst", "psst of words", "psst along samples"],
)
def test_sampled_gradients_have_the_enumerated_moments(single_image, estimator):
    mean, variance = single_image.moments(estimator)
    found = estimate_gradients(single_image.world, estimator, single_image.score, rounds=300)
    expected = float(found.var(0).sum()) / len(found)
    assert float((found.mean(0) - mean).square().sum()) < 5 * expected
    assert float(found.var(0).sum()) == pytest.approx(float(variance), rel=0.3)


def test_rho_0_is_straight_through(single_image):
    mean, variance = single_image.moments(make_psst(0.0))
    other = single_image.moments(Pathwise(StraightThrough(1, "soft")))
    torch.testing.assert_close(mean, other[0], rtol=0, atol=1e-14)
    torch.testing.assert_close(variance, other[1], rtol=1e-12, atol=0)


def test_psst_is_a_mixture_whose_variance_is_not_lower_by_a_factor(single_image):
    """For scores of single captions the mean is affine in ρ, and the variances within and between add up.

    The sum is (1 − ρ) V₀ + ρ V₁ + ρ (1 − ρ) |m₁ − m₀|². PSST's statement would hold for the bias if m₁ were exact.
    It would hold for the variance if V₁ were 0 and m₁ were equal to m₀.
    """
    (m0, v0), (m1, v1) = single_image.moments(make_psst(0.0)), single_image.moments(make_psst(1.0))
    for rho in (0.25, 0.5, 0.75):
        mean, variance = single_image.moments(make_psst(rho))
        torch.testing.assert_close(mean, (1 - rho) * m0 + rho * m1)
        between = rho * (1 - rho) * (m1 - m0).square().sum()
        torch.testing.assert_close(variance, (1 - rho) * v0 + rho * v1 + between)
        assert between > 0.01 * variance
    truth = single_image.world.exact_gradient(single_image.score)
    assert (m1 - truth).norm() > 0.1 * truth.norm()  # full distributions have the gradient of another score
    assert v1 > 0  # the end of a caption is sampled


def test_full_distributions_have_no_variance_where_no_caption_ends_early():
    world = draw_world(images=1, vocabulary=2, max_words=2, seed=4)
    with torch.no_grad():
        world.speaker.logit.bias[0] = -40
    enumeration = Enumeration(world, LinearScore(1, 2, 2))
    truth = world.exact_gradient(enumeration.score)
    assert compute_accuracy(*enumeration.moments(make_psst(1.0)), truth).variance == pytest.approx(0, abs=1e-9)
    assert compute_accuracy(*enumeration.moments(make_psst(0.0)), truth).variance > 1e-3


@pytest.mark.slow
def test_reinforce_is_exact_for_a_single_caption_and_misses_its_effect_on_other_scores(trained_world):
    reinforce = ScoreFunction(Multinomial(), SelfCritical())
    own = ImageHinge(trained_world.listener, 1.0)
    truth = trained_world.exact_gradient(own)
    assert compute_accuracy(*Enumeration(trained_world, own).moments(reinforce), truth).bias < 1e-9
    both = Hinge(trained_world.listener, 1.0)
    truth = trained_world.exact_gradient(both)
    assert compute_accuracy(*Enumeration(trained_world, both).moments(reinforce), truth).bias > 0.05


def test_sampled_estimators_are_not_enumerable():
    assert not is_enumerable(Pathwise(Gumbel()))
    assert not is_enumerable(Pathwise(PartialSampling(Gumbel(), 0.5)))
    assert not is_enumerable(ScoreFunction(Multinomial(), CentredBaseline()))
    assert not is_enumerable(ScoreFunction(Multinomial(2), SelfCritical(Multinomial())))
    assert not is_enumerable(Detached(Multinomial()))
    assert is_independent(Pathwise(Gumbel()))
    assert not is_independent(ScoreFunction(Multinomial(), CentredBaseline()))
    assert not is_independent(replace(make_psst(0.5), reduction="sum"))
    assert is_enumerable(ScoreFunction(Multinomial(), NoBaseline()))
    assert is_enumerable(ScoreFunction(Multinomial(), SelfCritical(TeacherForcing(requires_grad=False))))
