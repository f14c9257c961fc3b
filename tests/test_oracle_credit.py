"""Credit per word and the learned baseline against exact expectations over every caption of a small world.

Captions have at most three words of a vocabulary of three, so that there are 40 for each of two images.
"""

from dataclasses import replace

import pytest
import torch
from expected_losses import compute_error_ratio
from linear_score import LinearScore

from pipeline.channels.hard import Multinomial
from pipeline.estimators.credit import MonteCarloCredit
from pipeline.estimators.critic_baseline import CriticBaseline, CriticLoss
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import CaptionCredit, NoBaseline, ScoreFunction
from pipeline.gradients.gradient_world import draw_world
from pipeline.gradients.measure import estimate_gradients
from pipeline.models.critic import Critic

IMAGES, WORDS, STEPS = 2, 3, 3


@pytest.fixture(scope="module")
def world():
    return draw_world(IMAGES, WORDS, STEPS, seed=3)


@pytest.fixture(scope="module")
def linear_score():
    return LinearScore(IMAGES, WORDS, STEPS)


def test_credit_by_many_continuations_is_the_exact_conditional_expectation(world, linear_score):
    channel, samples = Multinomial(10), 2000
    rollouts = StepRollouts(world.speaker, world.batch, seed=2)
    message, captions = rollouts.get_message(channel), world.captions().tolist()
    found = MonteCarloCredit(samples)(linear_score(message, world.batch), linear_score, channel, rollouts)
    with torch.no_grad():
        p = world.log_probs().exp().T
    counts = set()
    for row in range(len(message)):
        image, tokens = int(message.images[row]), message.tokens[row].tolist()
        for t in range(int(message.mask[row].sum())):
            matching = [i for i, words in enumerate(captions) if words[: t + 1] == tokens[: t + 1]]
            probabilities = p[matching, image] / p[matching, image].sum()
            value = torch.stack([linear_score.table[(image, *captions[i])] for i in matching])
            mean = float(probabilities @ value)
            error = float((probabilities @ (value - mean).square() / samples).sqrt())
            assert abs(float(found[row, t]) - mean) < 4.5 * error + 1e-9, (tokens, t)
            counts.add(len(matching))
    assert counts == {1, 4, 13}  # numbers of captions that share three, two or one tokens


@pytest.mark.parametrize("kind", ["none", "learned"])
def test_credit_by_continuations_is_unbiased_with_and_without_a_critic(world, linear_score, kind):
    channel = Multinomial(20)
    torch.manual_seed(5)
    critic = Critic(4, 8).double()
    baseline = CriticBaseline(critic, channel) if kind == "learned" else NoBaseline()
    truth = world.exact_gradient(linear_score)
    found = estimate_gradients(
        world, ScoreFunction(channel, baseline, credit=MonteCarloCredit(2)), linear_score, rounds=100
    )
    assert compute_error_ratio(found, truth) < 2.5
    assert compute_error_ratio(found, 1.5 * truth) > 5  # the test rejects a gradient 1.5 times as large


def test_continuations_lower_the_variance(world, linear_score):
    caption_variance, token_variance = (
        estimate_gradients(world, ScoreFunction(Multinomial(4), credit=credit), linear_score, rounds=60).var(0).sum()
        for credit in (CaptionCredit(), MonteCarloCredit(5))
    )
    assert token_variance < 0.9 * caption_variance


def test_a_critic_learns_the_expected_score_of_states_and_lowers_the_variance(world):
    linear_score = LinearScore(IMAGES, WORDS, STEPS, level=3.0)
    channel, credit = Multinomial(10), MonteCarloCredit(2)
    torch.manual_seed(5)
    critic = Critic(4, 16).double()
    regression, adam = CriticLoss(channel, critic, credit), torch.optim.Adam(critic.parameters(), 0.02)
    errors = []
    for step in range(80):
        loss, _ = regression.surrogate(
            linear_score, StepRollouts(world.speaker, replace(world.batch, step=1000 + step), seed=7)
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
        errors.append(loss.item())
    assert all(p.grad is None for p in world.speaker.parameters())
    assert sum(errors[-10:]) < 0.8 * sum(errors[:10])
    plain_variance, critic_variance = (
        estimate_gradients(world, ScoreFunction(Multinomial(4), baseline, credit=credit), linear_score, 40).var(0).sum()
        for baseline in (NoBaseline(), CriticBaseline(critic, Multinomial(4)))
    )
    assert critic_variance < 0.7 * plain_variance
