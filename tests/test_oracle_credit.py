"""Credit per word and the learned baseline against exact expectations: every caption of a small world enumerated.

Four words at most three long: 40 captions for each of four images.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from pipeline.baselines import Learned, NoBaseline
from pipeline.channels import Multinomial
from pipeline.credit import Continuations, WholeCaption
from pipeline.estimators import Regression, ScoreFunction
from pipeline.models.critic import Critic
from pipeline.models.speaker import Speaker
from pipeline.rollouts import StepRollouts
from pipeline.types import Batch

WORDS, STEPS, IMAGES = 3, 3, 4
EVERY = [
    c for c in itertools.product(range(WORDS + 1), repeat=STEPS) if all(a or not b for a, b in itertools.pairwise(c))
]


class Taste:
    """A score with a value of its own for every caption of every image."""

    differentiable = False

    def __init__(self, mean: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(1)
        self.table = mean + 2 * torch.randn(IMAGES, *[WORDS + 1] * STEPS, generator=generator, dtype=torch.float64)

    def __call__(self, message, batch):
        tokens = F.pad(message.tokens, (0, STEPS - message.tokens.shape[1]))
        return self.table[message.images, tokens[:, 0], tokens[:, 1], tokens[:, 2]]


@pytest.fixture(scope="module")
def world():
    """Speaker, batch, score, and the critic's first weights."""
    torch.manual_seed(3)
    speaker = Speaker(WORDS, 3, words=4, hidden=4, attention=3, dropout=0.0, max_words=STEPS).double()
    with torch.no_grad():
        speaker.logit.weight *= 3
    batch = Batch(
        torch.arange(IMAGES),
        torch.zeros(IMAGES, 1, dtype=torch.float64),
        torch.randn(IMAGES, 2, 3, dtype=torch.float64),
        torch.ones(IMAGES, 2, dtype=torch.bool),
        torch.tensor([[1, 2, 0], [2, 0, 0], [3, 1, 2], [0, 0, 0]]),
    )
    return speaker, batch, Taste()


def probabilities(speaker, batch) -> torch.Tensor:
    """(captions, images), with a graph."""
    told = [replace(batch, captions=torch.tensor(words).expand(IMAGES, -1)) for words in EVERY]
    return torch.stack([speaker.read(one).log_probs.sum(1).exp() for one in told])


def flat(loss, speaker) -> torch.Tensor:
    weights = [p for n, p in speaker.named_parameters() if n in ("word.weight", "from_state.weight", "logit.weight")]
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])


def exact(world) -> torch.Tensor:
    """∇ of the mean expected score over images."""
    speaker, batch, taste = world
    p = probabilities(speaker, batch)
    torch.testing.assert_close(p.sum(0), torch.ones_like(p[0]))
    value = torch.stack([taste.table[(slice(None), *words)] for words in EVERY])
    return flat((p * value).sum() / IMAGES, speaker)


def estimates(world, estimator, rounds: int) -> torch.Tensor:
    """(rounds, parameters): the estimated gradients of `rounds` independent steps, per caption."""
    speaker, batch, taste = world
    found = []
    for step in range(rounds):
        rollouts = StepRollouts(speaker, replace(batch, step=step), seed=7)
        loss, _ = estimator.surrogate(taste, rollouts)
        message = rollouts.of(estimator.channel)
        found.append(-flat(loss, speaker) * message.mask.sum() / len(message))
    return torch.stack(found)


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Squared distance of the mean from the truth in units of what sampling alone makes expect; about 1 if unbiased."""
    return float((found.mean(0) - truth).square().sum() / (found.var(0).sum() / len(found)))


def test_with_many_continuations_a_word_is_worth_its_exact_conditional_expectation(world):
    speaker, batch, taste = world
    channel, samples = Multinomial(5), 2000
    rollouts = StepRollouts(speaker, batch, seed=2)
    message = rollouts.of(channel)
    found = Continuations(samples)(taste(message, batch), taste, channel, rollouts)
    with torch.no_grad():
        p = probabilities(speaker, batch)
    lengths = set()
    for row in range(len(message)):
        image, tokens = int(message.images[row]), message.tokens[row].tolist()
        for t in range(int(message.mask[row].sum())):
            begun = [i for i, words in enumerate(EVERY) if list(words[: t + 1]) == tokens[: t + 1]]
            chance = p[begun, image] / p[begun, image].sum()
            value = torch.stack([taste.table[(image, *EVERY[i])] for i in begun])
            mean = float(chance @ value)
            error = float((chance @ (value - mean).square() / samples).sqrt())
            assert abs(float(found[row, t]) - mean) < 4.5 * error + 1e-9, (tokens, t)
            lengths.add(len(begun))
    assert lengths == {1, 4, 13}  # last words, words before them, first words


@pytest.mark.parametrize("baseline", ["none", "learned"])
def test_credit_by_continuations_is_unbiased_with_any_critic(world, baseline):
    channel = Multinomial(20)
    torch.manual_seed(5)
    critic = Critic(4, 8).double()
    expected = Learned(critic, channel) if baseline == "learned" else NoBaseline()
    truth = exact(world)
    found = estimates(world, ScoreFunction(channel, expected, credit=Continuations(2)), rounds=100)
    assert distance(found, truth) < 2.5
    assert distance(found, 1.5 * truth) > 5  # a wrong one would be noticed


def test_continuations_lower_the_variance(world):
    whole, each = (
        estimates(world, ScoreFunction(Multinomial(4), credit=credit), rounds=60).var(0).sum()
        for credit in (WholeCaption(), Continuations(5))
    )
    assert each < 0.9 * whole


def test_a_critic_learns_what_states_promise_and_lowers_the_variance(world):
    (speaker, batch, _), taste = world, Taste(mean=3.0)
    channel, credit = Multinomial(10), Continuations(2)
    torch.manual_seed(5)
    critic = Critic(4, 16).double()
    regression, adam = Regression(channel, critic, credit), torch.optim.Adam(critic.parameters(), 0.02)
    errors = []
    for step in range(80):
        loss, _ = regression.surrogate(taste, StepRollouts(speaker, replace(batch, step=1000 + step), seed=7))
        adam.zero_grad()
        loss.backward()
        adam.step()
        errors.append(loss.item())
    assert all(p.grad is None for p in speaker.parameters())
    assert sum(errors[-10:]) < 0.8 * sum(errors[:10])
    without, with_it = (
        estimates((speaker, batch, taste), ScoreFunction(Multinomial(4), baseline, credit=credit), 40).var(0).sum()
        for baseline in (NoBaseline(), Learned(critic, Multinomial(4)))
    )
    assert with_it < 0.7 * without
