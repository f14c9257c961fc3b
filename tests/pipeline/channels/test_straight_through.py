"""Straight-through channels: gradients for one token under a polynomial score, and the random draws."""

import pytest
import torch

from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import Gumbel, GumbelRao, ReinMax, StraightThrough
from pipeline.random import BatchRandom
from pipeline.types import Batch

WORDS, DRAWS = 4, 40_000
LOGITS = torch.tensor([0.3, -0.8, 1.1, 0.2], dtype=torch.float64)
ONE_HOT = torch.eye(WORDS, dtype=torch.float64)


def make_batch_random(seed: int) -> BatchRandom:
    unused = torch.zeros(DRAWS, 1)
    return BatchRandom(Batch(torch.arange(DRAWS), *[unused] * 4), torch.Generator().manual_seed(seed))


def compute_score(words: torch.Tensor, cubic: float = 0.0) -> torch.Tensor:
    """Return (N,): linear and quadratic terms of words (N, V), and `cubic` times a cubic term."""
    generator = torch.Generator().manual_seed(2)
    one, two, three = (torch.randn([WORDS] * n, generator=generator, dtype=torch.float64) for n in (1, 2, 3))
    powers = torch.einsum("ni,nj,nk,ijk->n", words, words, words, three)
    return words @ one + ((words @ two) * words).sum(1) + cubic * powers


def differentiate_score(index: torch.Tensor, cubic: float = 0.0) -> torch.Tensor:
    """Return (N, V): the score's gradient at the words `index` (N,)."""
    words = ONE_HOT[index].requires_grad_()
    return torch.autograd.grad(compute_score(words, cubic).sum(), words)[0]


def backpropagate(channel, index: torch.Tensor, noise: torch.Tensor | None = None, cubic: float = 0.0) -> torch.Tensor:
    """Return (N, V): the score's gradient with respect to the logits where `channel` drew `index` (N,)."""
    logits = LOGITS.expand(len(index), WORDS).clone().requires_grad_()
    return torch.autograd.grad(channel.relax(logits, noise, index), logits, differentiate_score(index, cubic))[0]


def compute_gradient(cubic: float = 0.0) -> torch.Tensor:
    """Return (V,): the gradient of the expected score with respect to the logits."""
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad(logits.softmax(-1) @ compute_score(ONE_HOT, cubic), logits)[0]


def average_gradient(channel, cubic: float = 0.0) -> torch.Tensor:
    """Return (V,): the channel's gradient, averaged over the tokens by their probabilities."""
    return LOGITS.softmax(-1) @ backpropagate(channel, torch.arange(WORDS), cubic=cubic)


def draw_tokens(channel, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw many tokens, with the channel's noise."""
    index, noise = channel.sample(LOGITS.expand(DRAWS, WORDS), make_batch_random(seed), torch.arange(DRAWS))
    assert noise is not None
    return index, noise


def compare_means(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return (V,): the difference of two means over N, in its standard errors."""
    return (left.mean(0) - right.mean(0)) / ((left.var(0) + right.var(0)) / DRAWS).sqrt()


def test_reinmax_is_exact_where_the_score_is_quadratic():
    torch.testing.assert_close(average_gradient(ReinMax()), compute_gradient())
    assert (average_gradient(StraightThrough()) - compute_gradient()).norm() > 0.1 * compute_gradient().norm()
    assert (average_gradient(ReinMax(temperature=2.0)) - compute_gradient()).norm() > 0.01 * compute_gradient().norm()


def test_reinmax_is_biased_by_the_cubic_part_alone():
    """The bias is proportional to the cubic part. With a large cubic part, straight-through may have less bias."""
    bias = {cubic: average_gradient(ReinMax(), cubic) - compute_gradient(cubic) for cubic in (0.05, 1.0)}
    torch.testing.assert_close(bias[1.0], 20 * bias[0.05])
    assert 0 < bias[0.05].norm() < 0.5 * (average_gradient(StraightThrough(), 0.05) - compute_gradient(0.05)).norm()
    assert bias[1.0].norm() > (average_gradient(StraightThrough(), 1.0) - compute_gradient(1.0)).norm()


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_reinmax_has_the_gradient_of_the_authors_code(temperature):
    index = torch.arange(WORDS)
    slope, plain = differentiate_score(index), LOGITS.softmax(-1).expand(WORDS, WORDS)
    half = ((LOGITS / temperature).softmax(-1) + ONE_HOT[index]) / 2

    def backpropagate_softmax(shares, d):
        return shares * d - shares * (shares * d).sum(1, keepdim=True)

    expected = backpropagate_softmax(half, 2 * slope) + backpropagate_softmax(plain, -slope / 2)
    torch.testing.assert_close(backpropagate(ReinMax(temperature=temperature), index), expected)


@pytest.mark.parametrize("channel", [ReinMax(temperature=3.0), PartialSampling(ReinMax(temperature=3.0))])
def test_a_full_distribution_of_reinmax_is_the_speakers_own(channel):
    logits = LOGITS.repeat(WORDS, 1).requires_grad_()
    whole = channel.distribution(logits, None, torch.arange(WORDS))
    torch.testing.assert_close(whole, logits.softmax(-1))
    weight = torch.randn(WORDS, WORDS, dtype=torch.float64)
    found, expectation = (torch.autograd.grad((x * weight).sum(), logits)[0] for x in (whole, logits.softmax(-1)))
    torch.testing.assert_close(found, expectation)


def test_gumbel_rao_tokens_have_the_frequencies_of_their_probabilities_and_samples_relax_towards_them():
    index, noise = draw_tokens(GumbelRao(temperature=0.7, k=3))
    torch.testing.assert_close(index.bincount() / DRAWS, LOGITS.softmax(-1).float(), atol=0.01, rtol=0)
    assert noise.shape == (DRAWS, 3, WORDS)
    assert torch.equal(noise.argmax(-1), index.unsqueeze(1).expand(-1, 3))
    torch.testing.assert_close(noise.sum(-1), torch.ones(DRAWS, 3, dtype=torch.float64))


def test_gumbel_rao_of_one_draw_is_gumbel_in_distribution():
    """First and second moments of the relaxed samples are equal, over all tokens and for each token."""
    (index, noise), (word, perturbed) = (
        draw_tokens(GumbelRao(temperature=0.7, k=1)),
        draw_tokens(Gumbel(temperature=0.7), 9),
    )
    soft = Gumbel(temperature=0.7).relax(LOGITS, perturbed, word)
    for power in (1, 2):
        left, right = noise.squeeze(1) ** power, soft**power
        assert compare_means(left, right).abs().max() < 4
        for i in range(WORDS):
            assert compare_means(left * (index == i).unsqueeze(1), right * (word == i).unsqueeze(1)).abs().max() < 4


def test_gumbel_rao_has_the_mean_gradient_of_its_samples():
    index, noise = draw_tokens(GumbelRao(temperature=0.7, k=3))
    index, noise = index[:50], noise[:50]
    logits = LOGITS.expand(50, WORDS).clone().requires_grad_()
    perturbation = 0.7 * noise.log() - LOGITS  # up to a constant, which changes no softmax
    mean = ((logits.unsqueeze(1) + perturbation) / 0.7).softmax(-1).mean(1)
    expectation = torch.autograd.grad(mean, logits, differentiate_score(index), retain_graph=True)[0]
    torch.testing.assert_close(backpropagate(GumbelRao(temperature=0.7, k=3), index, noise), expectation)
    whole = PartialSampling(GumbelRao(temperature=0.7, k=3)).distribution(logits, noise, index)
    torch.testing.assert_close(whole, mean)
    torch.testing.assert_close(torch.autograd.grad(whole, logits, differentiate_score(index))[0], expectation)


def backpropagate_through_noise(index: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return (N, V): the gradient of one Gumbel-Rao draw with the path through the noise, as in the paper's text."""
    logits = LOGITS.expand(DRAWS, WORDS).clone().requires_grad_()
    times = torch.empty(DRAWS, WORDS, dtype=torch.float64).exponential_(generator=torch.Generator().manual_seed(4))
    first = times.gather(1, index.unsqueeze(1)) / logits.exp().sum(1, keepdim=True)
    arrival = torch.where(ONE_HOT[index] > 0, first, times / logits.exp() + first)
    soft = (-arrival.log() / temperature).softmax(-1)
    assert torch.equal(soft.argmax(-1), index)
    return torch.autograd.grad(soft, logits, differentiate_score(index))[0]


def test_gumbel_rao_has_the_mean_gradient_of_gumbel_only_without_a_gradient_through_the_noise():
    """A public implementation contradicts the paper's text (§3.2), and the implementation is right.

    The measured mean gradient of Gumbel is (−.084, .074, −.052, .062). That of Gumbel-Rao is
    (−.083, .073, −.054, .064) without a gradient through the noise, and (−.011, .038, −.032, .005) with this gradient.
    """
    gumbel = backpropagate(Gumbel(temperature=0.7), *draw_tokens(Gumbel(temperature=0.7), 9))
    index, noise = draw_tokens(GumbelRao(temperature=0.7, k=1))
    constant = backpropagate(GumbelRao(temperature=0.7, k=1), index, noise)
    total = backpropagate_through_noise(index, 0.7)
    assert compare_means(constant, gumbel).abs().max() < 4
    assert compare_means(total, gumbel).abs().max() > 40
    assert (total.mean(0) - gumbel.mean(0)).norm() > 0.6 * gumbel.mean(0).norm()


def test_k_draws_divide_the_variance_of_the_noise_given_the_token_by_k():
    """Check Eq. 13 of Paulus et al. (2021)."""
    variances = {}
    for k in (1, 4, 32):
        index, noise = draw_tokens(GumbelRao(temperature=0.7, k=k))
        variances[k] = float(backpropagate(GumbelRao(temperature=0.7, k=k), index, noise).var(0).sum())
    gumbel_variance = float(backpropagate(Gumbel(temperature=0.7), *draw_tokens(Gumbel(temperature=0.7))).var(0).sum())
    assert variances[1] == pytest.approx(gumbel_variance, rel=0.05)
    noise_variance = (variances[1] - variances[4]) / (1 - 1 / 4)
    assert noise_variance > 0.3 * variances[1]
    assert variances[32] == pytest.approx(variances[1] - noise_variance * (1 - 1 / 32), rel=0.05)


@pytest.mark.parametrize("channel", [ReinMax(5), GumbelRao(5, k=2)])
def test_a_captions_draws_do_not_depend_on_the_other_unfinished_captions(toy, channel):
    logits, some = torch.randn(40, 13), torch.tensor([3, 4, 17, 39])

    def choose_tokens(rows):
        return channel.open(toy.batch(), 12, torch.Generator().manual_seed(0))(0, logits[rows], rows)

    every, few = choose_tokens(torch.arange(40)), choose_tokens(some)
    assert torch.equal(few.index, every.index[some])
    if few.noise is not None:
        torch.testing.assert_close(few.noise, every.noise[some])


def test_the_smallest_and_largest_uniform_numbers_give_finite_shares():
    class ExtremeUniforms(BatchRandom):
        def rand_like(self, x, rows=None, width=1):
            ends = torch.tensor([0.0, 1 - 2**-24, 0.5], dtype=x.dtype)
            return ends[torch.arange(x.numel()) % 3].view(x.shape).clone()

    logits = torch.tensor([[0.0, -200.0, 1.0, 88.0]]).expand(12, 4)
    index, noise = GumbelRao(k=5).sample(logits, ExtremeUniforms(make_batch_random(0).batch, None), torch.arange(12))
    assert torch.isfinite(noise).all()
    assert (noise.gather(2, index.view(-1, 1, 1).expand(-1, 5, 1)) > 0).all()


def test_the_default_temperature_is_1():
    for channel in (Gumbel, ReinMax, GumbelRao):
        assert channel(2) == channel(2, temperature=1.0)
