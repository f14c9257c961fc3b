"""Estimators against an exact gradient: a channel small enough to enumerate every caption.

Four words at most two long: 13 captions for each of four images. The expected score of a caption, summed over the
images, is a plain differentiable sum of probability × score, and so is its gradient.
"""

from __future__ import annotations

import pytest
import torch

from pipeline.baselines import Centred, NoBaseline, SelfCritical
from pipeline.channels import Forced, Gumbel, Multinomial, PartialSampling, StraightThrough
from pipeline.estimators import Pathwise, ScoreFunction
from pipeline.models.speaker import Speaker
from pipeline.rollouts import StepRollouts
from pipeline.types import Batch, Message

VOCABULARY, STEPS, IMAGES = 3, 2, 4
CAPTIONS = [(0, 0), *[(a, b) for a in range(1, VOCABULARY + 1) for b in range(VOCABULARY + 1)]]


class Taste:
    """A score with a value of its own for every caption of every image; smooth in what was said."""

    differentiable = True

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        shape = (IMAGES, VOCABULARY + 1, VOCABULARY + 1)
        self.table = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)

    def __call__(self, message: Message, batch: Batch) -> torch.Tensor:
        if message.said is None:
            tokens = torch.nn.functional.pad(message.tokens, (0, STEPS - message.tokens.shape[1]))
            return self.table[message.images, tokens[:, 0], tokens[:, 1]]
        said = message.rows(VOCABULARY)
        if said.shape[1] < STEPS:
            silence = torch.zeros_like(said[:, :1])
            silence[..., 0] = 1
            said = torch.cat([said, silence], 1)
        return torch.einsum("nij,ni,nj->n", self.table[message.images], said[:, 0], said[:, 1])


@pytest.fixture(scope="module")
def world():
    torch.manual_seed(3)
    speaker = Speaker(VOCABULARY, 3, words=4, hidden=4, attention=3, dropout=0.0, max_words=STEPS).double()
    with torch.no_grad():
        speaker.logit.weight *= 3
    batch = Batch(
        torch.arange(IMAGES),
        torch.zeros(IMAGES, 1, dtype=torch.float64),
        torch.randn(IMAGES, 2, 3, dtype=torch.float64),
        torch.ones(IMAGES, 2, dtype=torch.bool),
        torch.tensor([[1, 2], [2, 0], [3, 1], [0, 0]]),
    )
    return speaker, batch, Taste()


def weights(speaker):
    return [p for n, p in speaker.named_parameters() if n in ("word.weight", "from_state.weight", "logit.weight")]


def flat(gradients) -> torch.Tensor:
    return torch.cat([g.flatten() for g in gradients])


def probabilities(speaker, batch) -> torch.Tensor:
    """(captions, images): the speaker's probability of each caption; they sum to one for an image."""
    rows = []
    for words in CAPTIONS:
        told = batch.to("cpu")
        told.captions[:] = torch.tensor(words)
        rows.append(speaker.read(told).log_probs.sum(1).exp())
    return torch.stack(rows)


def exact(world) -> torch.Tensor:
    """∇ of the mean expected score over images."""
    speaker, batch, taste = world
    saved = batch.captions.clone()
    p = probabilities(speaker, batch)
    batch.captions[:] = saved
    torch.testing.assert_close(p.sum(0), torch.ones_like(p[0]))
    value = torch.stack([taste.table[:, a, b] for a, b in CAPTIONS])
    return flat(torch.autograd.grad((p * value).sum() / IMAGES, weights(speaker)))


def per_word_to_per_caption(message: Message) -> float:
    """ScoreFunction averages over words, the expectation over captions."""
    return float(message.mask.sum()) / len(message)


def estimates(world, estimator, rounds: int) -> torch.Tensor:
    """(rounds, parameters): the estimated gradients of `rounds` independent steps."""
    speaker, batch, taste = world
    found = []
    for step in range(rounds):
        at = Batch(batch.images, batch.pooled, batch.regions, batch.region_mask, batch.captions, step=step)
        rollouts = StepRollouts(speaker, at, seed=7)
        loss, _ = estimator.surrogate(taste, rollouts)
        scale = per_word_to_per_caption(rollouts.of(estimator.channel)) if isinstance(estimator, ScoreFunction) else 1
        found.append(-scale * flat(torch.autograd.grad(loss, weights(speaker), allow_unused=True)))
    return torch.stack(found)


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    """Squared distance of the mean from the truth in units of what sampling alone makes expect; about 1 if unbiased."""
    error = found.mean(0) - truth
    expected = found.var(0).sum() / len(found)
    return float(error.square().sum() / expected)


@pytest.mark.parametrize(
    ("baseline", "samples"),
    [(NoBaseline(), 100), (SelfCritical(), 100), (SelfCritical(Forced(learns=False)), 100)],
)
def test_score_function_estimators_are_unbiased(world, baseline, samples):
    found = estimates(world, ScoreFunction(Multinomial(samples), baseline), rounds=150)
    truth = exact(world)
    assert float(truth.norm()) > 0.1
    assert distance(found, truth) < 2.5
    assert float((found.mean(0) - truth).norm() / truth.norm()) < 0.1


def test_a_wrong_gradient_would_be_noticed(world):
    found = estimates(world, ScoreFunction(Multinomial(100), SelfCritical()), rounds=150)
    assert distance(found, 1.3 * exact(world)) > 5


def test_a_baseline_lowers_the_variance(world):
    plain = estimates(world, ScoreFunction(Multinomial(4), NoBaseline()), rounds=150).var(0).sum()
    critical = estimates(world, ScoreFunction(Multinomial(4), Centred(SelfCritical())), rounds=150).var(0).sum()
    assert critical < plain


def test_centring_is_biased_by_one_part_in_n(world):
    """The batch mean includes the caption itself, so the gradient shrinks by 1 − 1/N when images do not matter."""
    few = estimates(world, ScoreFunction(Multinomial(1), Centred(NoBaseline())), rounds=2500).mean(0)
    many = estimates(world, ScoreFunction(Multinomial(100), Centred(NoBaseline())), rounds=100).mean(0)
    truth = exact(world)
    share = [float(found @ truth / truth.square().sum()) for found in (few, many)]
    assert share[0] < share[1]
    assert abs(share[1] - 1) < 0.08


def test_the_bias_of_pathwise_estimators_is_measured(world):
    """All are biased: words by straight-through, full rows because a mixture of words is no mixture of captions.

    Measured here: bias .28, .28, .38 of the gradient's norm for ρ = 0, .5, 1, noise .20, .15, .10. Gumbel samples: bias
    .41 and, half of them passing whole, .43, noise .20 and .18.
    """
    truth = exact(world)
    bias, noise = {}, {}
    for name, channel in {
        "st": StraightThrough(samples=50, ending="soft"),
        "psst": PartialSampling(StraightThrough(samples=50, ending="soft"), rho=0.5),
        "st_gumbel": Gumbel(samples=50, ending="soft"),
        "psst_gumbel": PartialSampling(Gumbel(samples=50, ending="soft"), rho=0.5),
        "soft": PartialSampling(StraightThrough(samples=50, ending="soft"), rho=1.0),
    }.items():
        found = estimates(world, Pathwise(channel), rounds=60)
        error = found.mean(0) - truth
        # the squared distance of the mean, less what sampling adds to it
        bias[name] = float((error.square().sum() - found.var(0).sum() / len(found)).clamp(min=0).sqrt() / truth.norm())
        noise[name] = float(found.var(0).sum().sqrt() / truth.norm())
    print({name: f"bias {bias[name]:.2f} noise {noise[name]:.3f}" for name in bias})
    assert all(0.02 < value < 2 for value in bias.values()), bias
    assert noise["soft"] < noise["psst"] < noise["st"], noise
