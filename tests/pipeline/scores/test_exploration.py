import itertools
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from expected_losses import compute_error_ratio
from pycocoevalcap.bleu.bleu_scorer import BleuScorer

from pipeline.channels.hard import Multinomial
from pipeline.estimators.baselines import GroupMean
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import NoBaseline, Pathwise, ScoreFunction
from pipeline.models.att2in import Att2in
from pipeline.models.unroll import generate, teacher_force
from pipeline.scores.exploration import SetDistance, TokenEntropy
from pipeline.types import Batch, Message, make_caption_mask

WORDS, STEPS, IMAGES = 2, 5, 50
CAPTIONS = [
    (*sequence, *(0,) * (STEPS - n))
    for n in range(STEPS + 1)
    for sequence in itertools.product(range(1, WORDS + 1), repeat=n)
]


def compute_distance(caption, reference) -> float:
    """Compute the distance by pycocoevalcap's sentence BLEU; 0 for equal captions."""
    if caption == reference:
        return 0.0
    texts = [" ".join(str(word) for word in words if word) for words in (caption, reference)]
    bleu = BleuScorer(texts[0], [texts[1]], n=4).compute_score(option="closest", verbose=0)[1]
    return 2 - bleu[2][0] - bleu[3][0]


def make_message(tokens: list, samples: int) -> Message:
    rows = torch.tensor(tokens)
    return Message(rows, make_caption_mask(rows), torch.arange(len(rows)) // samples, samples)


def make_empty_batch(dtype: torch.dtype = torch.float32) -> Batch:
    """Return a batch without content; the score uses only its precision."""
    zeros = torch.zeros(1, 1, dtype=dtype)
    return Batch(torch.zeros(1, dtype=torch.int64), zeros, zeros, zeros.bool(), zeros.long())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_the_mean_distance_to_the_samples_of_the_same_image_equals_pycocoevalcap(dtype, tolerance):
    tokens = [CAPTIONS[i] for i in (31, 33, 62, 47, 15, 31, 7, 0, 46, 46, 30, 61)]
    found = SetDistance()(make_message(tokens, 4), make_empty_batch(dtype))
    expected = [sum(compute_distance(tokens[j], tokens[j // 4 * 4 + k]) for k in range(4)) / 4 for j in range(12)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype), atol=tolerance, rtol=tolerance)
    assert len({round(value, 3) for value in expected}) > 6


@pytest.mark.parametrize("caption", [(1, 2, 1, 0, 0), (1, 0, 0, 0, 0), (0,) * 5, (2, 2, 1, 1, 2)])
def test_equal_captions_have_no_distance_however_short(caption):
    assert not SetDistance()(make_message([caption] * 6, 3), make_empty_batch()).any()


@pytest.fixture(scope="module")
def world():
    """Return a speaker with two words and 63 possible captions, and a batch of one image 50 times."""
    torch.manual_seed(3)
    speaker = Att2in(WORDS, 3, words=4, hidden=4, attention=3, dropout=0.0, max_words=STEPS).double()
    with torch.no_grad():
        speaker.logit.weight *= 3
        speaker.logit.bias[0] -= 2
    regions = torch.randn(1, 2, 3, dtype=torch.float64).expand(IMAGES, -1, -1)
    pooled = torch.zeros(IMAGES, 1, dtype=torch.float64)
    captions = torch.zeros(IMAGES, STEPS, dtype=torch.int64)
    return speaker, Batch(torch.arange(IMAGES), pooled, regions, torch.ones(IMAGES, 2, dtype=torch.bool), captions)


def compute_log_probs(world) -> torch.Tensor:
    """Return the log-probability of every caption, (63,)."""
    speaker, batch = world
    all_captions = Batch(
        torch.arange(len(CAPTIONS)),
        torch.zeros(len(CAPTIONS), 1),
        batch.regions[:1].expand(len(CAPTIONS), -1, -1),
        torch.ones(len(CAPTIONS), 2, dtype=torch.bool),
        torch.tensor(CAPTIONS),
    )
    found = teacher_force(speaker, all_captions).log_probs.sum(1)
    torch.testing.assert_close(found.exp().sum(), torch.ones((), dtype=torch.float64))
    return found


def compute_gradient(value: torch.Tensor, world) -> torch.Tensor:
    weights = list(world[0].parameters())
    parts = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def estimate_gradients(world, score, estimator, rounds: int) -> torch.Tensor:
    """Return the estimator's gradients (rounds, P) of the mean score over captions."""
    speaker, batch = world
    found = []
    for step in range(rounds):
        rollouts = StepRollouts(speaker, replace(batch, step=step), seed=7)
        loss, _ = estimator.surrogate(score, rollouts)
        # the loss is a mean over words, the expectation is over captions
        words = rollouts.get_message(estimator.channel).mask.sum()
        found.append(compute_gradient(-loss, world) * words / (IMAGES * estimator.channel.samples))
    return torch.stack(found)


def test_the_gradient_of_the_expected_distance_and_the_bias_of_the_group_mean(world):
    """The expected distance has twice the score's gradient, because the speaker draws both captions of a pair.

    Each of s samples is compared with s − 1 other captions. GroupMean also multiplies the gradient by about 1 − 2/s.
    """
    p, s = compute_log_probs(world).exp(), 5
    table = torch.tensor([[compute_distance(a, b) for b in CAPTIONS] for a in CAPTIONS], dtype=torch.float64)
    by_caption = p.detach() @ table.T
    truth = 2 * compute_gradient((p * by_caption).sum(), world)
    plain = 2 * estimate_gradients(world, SetDistance(), ScoreFunction(Multinomial(s), NoBaseline()), 60)
    assert compute_error_ratio(plain, truth * (s - 1) / s) < 2
    # each caption contributes to the mean twice: as the caption, and as a reference of other captions
    reference_gradient = compute_gradient((p * (p.detach() @ table)).sum(), world)
    centred_truth = (s - 1) / s * (truth - (truth + 2 * reference_gradient) / s)
    centred = 2 * estimate_gradients(world, SetDistance(), ScoreFunction(Multinomial(s), GroupMean()), 60)
    assert compute_error_ratio(centred, centred_truth) < 4
    assert compute_error_ratio(centred, truth * (s - 1) / s) > 50
    assert centred.var(0).sum() < plain.var(0).sum() / 10
    # the distance is not symmetric, but both of its gradients are nearly equal
    torch.testing.assert_close(reference_gradient, truth / 2, atol=0.05 * float(truth.norm()), rtol=0)


@pytest.mark.slow
def test_the_gradient_of_the_entropy_of_captions_is_unbiased_by_score_function_and_biased_by_pathwise(world):
    """Σ over words of conditional entropies is the entropy of captions, by the chain rule."""
    log_p = compute_log_probs(world)
    truth = compute_gradient(-(log_p.exp() * log_p).sum(), world)
    channel = Multinomial(20, entropies=True)
    found = estimate_gradients(world, TokenEntropy(), ScoreFunction(channel, NoBaseline(), "words"), 60)
    assert compute_error_ratio(found, truth) < 2.5
    assert compute_error_ratio(estimate_gradients(world, TokenEntropy(), Pathwise(channel, "words"), 60), truth) > 10


def test_the_entropy_of_a_caption_is_the_sum_over_its_words(world):
    speaker, batch = deepcopy(world)
    with torch.no_grad():
        speaker.logit.weight *= 0
        speaker.logit.bias *= 0
        generated = generate(speaker, batch, Multinomial(2, entropies=True), torch.Generator().manual_seed(1))
    lengths = generated.mask.sum(1)
    torch.testing.assert_close(TokenEntropy()(generated, batch), lengths * torch.tensor(WORDS + 1.0).double().log())
    assert lengths.min() < lengths.max()
