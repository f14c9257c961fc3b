"""Estimators against an exact gradient, in a world small enough to enumerate every caption.

Captions have at most two words of a vocabulary of three, so that there are 13 for each of four images. The expected
score of a caption, averaged over the images, is a differentiable sum of probability × score. Autograd computes the
exact gradient of this sum (pipeline/gradients).
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from expected_losses import compute_error_ratio
from linear_score import LinearScore

from pipeline.channels.hard import Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import Gumbel, StraightThrough
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.estimators.baselines import CentredBaseline, LeaveOneOut, SelfCritical
from pipeline.estimators.surrogate import NoBaseline, Pathwise, ScoreFunction
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import estimate_accuracy, estimate_gradients
from pipeline.models.lstm import PooledLstm
from pipeline.models.transformer import Transformer

VOCABULARY, STEPS, IMAGES = 3, 2, 4


@pytest.fixture(scope="module")
def world():
    return draw_world(IMAGES, VOCABULARY, STEPS, seed=3)


@pytest.fixture(scope="module")
def linear_score():
    return LinearScore(IMAGES, VOCABULARY, STEPS)


@pytest.mark.parametrize("baseline", [NoBaseline(), SelfCritical(), SelfCritical(TeacherForcing(requires_grad=False))])
def test_score_function_estimators_are_unbiased(world, linear_score, baseline):
    found = estimate_gradients(world, ScoreFunction(Multinomial(100), baseline), linear_score, rounds=150)
    truth = world.exact_gradient(linear_score)
    assert float(truth.norm()) > 0.1
    assert compute_error_ratio(found, truth) < 2.5
    assert float((found.mean(0) - truth).norm() / truth.norm()) < 0.1


def test_a_wrong_gradient_would_be_detected(world, linear_score):
    found = estimate_gradients(world, ScoreFunction(Multinomial(100), SelfCritical()), linear_score, rounds=150)
    assert compute_error_ratio(found, 1.3 * world.exact_gradient(linear_score)) > 5


def test_a_baseline_lowers_the_variance_where_scores_are_far_from_0(world):
    linear_score = LinearScore(IMAGES, VOCABULARY, STEPS, level=3)
    plain = (
        estimate_gradients(world, ScoreFunction(Multinomial(4), NoBaseline()), linear_score, rounds=150).var(0).sum()
    )
    self_critical = (
        estimate_gradients(
            world, ScoreFunction(Multinomial(4), CentredBaseline(SelfCritical())), linear_score, rounds=150
        )
        .var(0)
        .sum()
    )
    assert self_critical < plain


@pytest.mark.slow
def test_centring_is_biased_by_one_part_in_n(world, linear_score):
    """The batch mean includes the caption, which scales the gradient of a score of single captions by 1 − 1/N."""
    one_sample = estimate_gradients(
        world, ScoreFunction(Multinomial(1), CentredBaseline(NoBaseline())), linear_score, rounds=2500
    ).mean(0)
    many_samples = estimate_gradients(
        world, ScoreFunction(Multinomial(100), CentredBaseline(NoBaseline())), linear_score, rounds=100
    ).mean(0)
    truth = world.exact_gradient(linear_score)
    scales = [float(found @ truth / truth.square().sum()) for found in (one_sample, many_samples)]
    assert abs(scales[0] - (1 - 1 / IMAGES)) < 0.08
    assert abs(scales[1] - 1) < 0.08


def test_the_bias_of_pathwise_estimators_is_measured(world, linear_score):
    """Full distributions give a biased gradient, too, since a mixture of words is no mixture of captions."""
    truth = world.exact_gradient(linear_score)
    found = {
        name: estimate_accuracy(estimate_gradients(world, Pathwise(channel), linear_score, rounds=60), truth)
        for name, channel in {
            "st": StraightThrough(samples=50, eos_gradient="soft"),
            "psst": PartialSampling(StraightThrough(samples=50, eos_gradient="soft"), rho=0.5),
            "st_gumbel": Gumbel(samples=50, eos_gradient="soft"),
            "psst_gumbel": PartialSampling(Gumbel(samples=50, eos_gradient="soft"), rho=0.5),
            "soft": PartialSampling(StraightThrough(samples=50, eos_gradient="soft"), rho=1.0),
        }.items()
    }
    print({name: f"bias {accuracy.bias:.2f} noise {accuracy.variance**0.5:.3f}" for name, accuracy in found.items()})
    assert all(0.02 < accuracy.bias < 2 for accuracy in found.values()), found
    assert found["soft"].variance < found["psst"].variance < found["st"].variance, found


@pytest.mark.parametrize(("baseline", "samples"), [(NoBaseline(), 100), (LeaveOneOut(), 20)])
@pytest.mark.parametrize(
    "make_speaker",
    [partial(Transformer, encoder_layers=1, layers=1, heads=2), partial(PooledLstm, words=4)],
    ids=["transformer", "lstm"],
)
def test_gradients_of_other_speakers_captions_are_unbiased_too(world, linear_score, make_speaker, baseline, samples):
    torch.manual_seed(3)
    speaker = make_speaker(VOCABULARY, 3, hidden=4, dropout=0.0, max_words=STEPS)
    with torch.no_grad():
        speaker.logit.weight *= 3
    world = replace(world, speaker=speaker.double())
    found = estimate_gradients(world, ScoreFunction(Multinomial(samples), baseline), linear_score, rounds=150)
    truth = world.exact_gradient(linear_score)
    assert float(truth.norm()) > 0.1
    assert compute_error_ratio(found, truth) < 2.5
    assert compute_error_ratio(found, 1.3 * truth) > 5
