from __future__ import annotations

import pytest
import torch

from pipeline.channels import (
    Beam,
    Forced,
    Greedy,
    Gumbel,
    Multinomial,
    PartialSampling,
    ScheduledSampling,
    StraightThrough,
    draw,
    straight_through,
)
from pipeline.errors import UserError
from pipeline.types import caption_mask


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_words_are_drawn_as_often_as_they_are_likely():
    probabilities = torch.tensor([0.0, 0.1, 0.2, 0.7, 0.0])
    drawn = draw(probabilities.expand(40_000, 5), rng())
    share = torch.bincount(drawn, minlength=5) / 40_000
    assert share[0] == share[4] == 0
    # four standard errors
    torch.testing.assert_close(share, probabilities, atol=4 * (0.21 / 40_000) ** 0.5, rtol=0)


def test_drawing_stays_within_the_words_when_probabilities_do_not_sum_to_one():
    assert draw(torch.full((1000, 3), 1e-6), rng()).max() == 2
    assert draw(torch.tensor([[1.0, 0.0, 0.0]]).expand(1000, 3), rng()).max() == 0


def test_straight_through_is_a_word_forward_and_the_identity_backward():
    logits = torch.randn(4, 5, requires_grad=True)
    probabilities = logits.softmax(-1)
    index = torch.tensor([1, 0, 4, 2])
    said = straight_through(index, probabilities)
    torch.testing.assert_close(said, torch.eye(5)[index])
    weight = torch.randn(4, 5)
    (said * weight).sum().backward()
    expected = torch.autograd.grad((logits.softmax(-1) * weight).sum(), logits)[0]
    torch.testing.assert_close(logits.grad, expected)


def _open(channel, toy, logits):
    batch = toy.batch()
    return channel.open(batch, 12, rng())(0, logits.log_softmax(-1))


@pytest.mark.parametrize("rho", [0.25, 0.75])
def test_a_share_rho_of_captions_passes_whole(toy, rho):
    channel = PartialSampling(StraightThrough(samples=500), rho)
    step = channel.open(toy.batch(), 12, rng())
    logits = torch.randn(4000, 13)
    logits[:, 0] = -20  # nobody ends
    said = [step(t, logits.log_softmax(-1)).said for t in range(2)]
    first, second = ((words > 0).sum(-1) > 1 for words in said)
    assert abs(float(first.float().mean()) - rho) < 0.03
    assert torch.equal(first, second), "a caption passes whole from beginning to end or not at all"
    torch.testing.assert_close(said[0][first], logits.softmax(-1)[first])


def test_a_share_rho_of_words_passes_whole(toy):
    channel = PartialSampling(StraightThrough(samples=500), 0.5, mix="token")
    step = channel.open(toy.batch(), 12, rng())
    logits = torch.randn(4000, 13)
    logits[:, 0] = -20
    first, second = ((step(t, logits.log_softmax(-1)).said > 0).sum(-1) > 1 for t in range(2))
    assert abs(float(first.float().mean()) - 0.5) < 0.04
    assert abs(float((first & second).float().mean()) - 0.25) < 0.04


def test_whole_captions_go_on_from_themselves_and_words_from_words(toy):
    logits = torch.randn(8, 13, requires_grad=True)
    with torch.no_grad():
        logits[:, 0] = -20
    symbol = _open(PartialSampling(rho=0.5), toy, logits)
    whole = (symbol.said > 0).sum(-1) > 1
    assert 0 < whole.sum() < 8
    torch.testing.assert_close(symbol.fed[whole], logits.softmax(-1)[whole])
    assert torch.equal(symbol.fed[~whole], torch.eye(13)[symbol.index[~whole]])
    assert not torch.autograd.grad(symbol.fed[~whole].sum(), logits, retain_graph=True)[0].any()
    assert _open(PartialSampling(rho=0.5, feed="sample"), toy, logits).fed is None


@pytest.mark.parametrize("channel", [StraightThrough(), PartialSampling(rho=1.0)])
def test_the_end_is_heard_as_a_constant_unless_asked_otherwise(toy, channel):
    logits = torch.zeros(8, 13, requires_grad=True)
    with torch.no_grad():
        logits[:, 0] = 30.0
    symbol = _open(channel, toy, logits)
    assert not symbol.index.any()
    assert torch.equal(symbol.said, torch.eye(13)[[0] * 8])
    assert not torch.autograd.grad(symbol.said.sum() + symbol.said[:, 3].sum(), logits, allow_unused=True)[0].any()
    soft = StraightThrough(ending="soft")
    channel = soft if isinstance(channel, StraightThrough) else PartialSampling(soft, rho=1.0)
    with torch.no_grad():
        logits[:, 0] = 3.0
    symbol = _open(channel, toy, logits)
    assert torch.autograd.grad(symbol.said[:, 0].sum(), logits)[0].abs().sum() > 0


def test_greedy_takes_the_likeliest(toy):
    logits = torch.randn(8, 13)
    assert torch.equal(_open(Greedy(), toy, logits).index, logits.argmax(-1))


def test_forced_says_what_it_is_told(toy):
    batch = toy.batch()
    step = Forced().open(batch, 12, rng())
    for t in range(batch.captions.shape[1]):
        assert torch.equal(step(t, torch.randn(8, 13)).index, batch.captions[:, t])


def test_scheduled_sampling_feeds_a_growing_share_of_its_own_words(toy):
    schedule = ScheduledSampling(start=0, every=5, by=0.05, most=0.25)
    assert [schedule.share(e) for e in (0, 4, 5, 10, 24, 25, 99)] == [0, 0, 0.05, 0.1, 0.2, 0.25, 0.25]
    batch = toy.batch()
    object.__setattr__(batch, "epoch", 99)
    logits = torch.full((8, 13), -20.0)
    logits[:, 7] = 20
    fed = torch.stack(
        [
            Forced(ScheduledSampling(0, 1, 0.5, 0.5)).open(batch, 12, rng(s))(0, logits.log_softmax(-1)).fed
            for s in range(200)
        ]
    )
    own = (fed == 7).float().mean()
    told = (batch.captions[:, 0] == 7).float().mean()
    assert abs(float(own) - (0.5 + 0.5 * float(told))) < 0.06
    assert ((fed == 7) | (fed == batch.captions[:, 0])).all()


def test_equal_channels_are_equal_and_others_are_not():
    assert Multinomial() == Multinomial(1)
    assert PartialSampling(rho=0.25) == PartialSampling(StraightThrough(), 0.25)
    assert len({Multinomial(), Greedy(), Greedy(dropout=True), StraightThrough(), PartialSampling(rho=0.0)}) == 5


def test_a_beam_gives_no_more_than_it_holds():
    with pytest.raises(UserError, match="1 to 2 captions, not 3"):
        Beam(width=2, samples=3)


def test_the_mask_holds_the_words_and_the_eos_that_ends_them():
    tokens = torch.tensor([[1, 2, 0, 0], [0, 0, 0, 0], [3, 3, 3, 3], [1, 0, 2, 0]])
    expected = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    assert caption_mask(tokens).int().tolist() == expected


def test_gumbel_words_are_drawn_as_often_as_they_are_likely_at_any_temperature():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    for temperature in (0.3, 1.0, 5.0):
        index, soft = Gumbel(temperature=temperature).sample(probabilities.log().expand(40_000, 4), rng(3))
        shares = index.bincount(minlength=4) / len(index)
        torch.testing.assert_close(shares, probabilities, atol=0.01, rtol=0)
        assert torch.equal(soft.argmax(-1), index)
        torch.testing.assert_close(soft.sum(-1), torch.ones(len(soft)))


def test_the_gradient_of_a_gumbel_word_is_that_of_its_relaxed_sample(toy):
    logits = torch.randn(8, 13, requires_grad=True)
    weight = torch.randn(8, 13)
    channel = Gumbel(temperature=2.0, ending="soft")
    step = channel.open(toy.batch(), 12, rng(1))
    symbol = step(0, logits.log_softmax(-1))
    assert torch.equal(symbol.said.argmax(-1), symbol.index)
    hard = torch.autograd.grad((symbol.said * weight).sum(), logits)[0]
    _, soft = channel.sample(logits.log_softmax(-1), rng(1))
    torch.testing.assert_close(hard, torch.autograd.grad((soft * weight).sum(), logits)[0])
