from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from pipeline.channels.hard import BanToken, Beam, Greedy, Multinomial, log_partition, sample_tokens, top_k
from pipeline.channels.partial import PartialSampling
from pipeline.channels.search import NoRepeatNgram, SearchTrajectory
from pipeline.channels.straight_through import Gumbel, StraightThrough
from pipeline.channels.teacher_forcing import (
    ForcedPrefix,
    PrefixRollouts,
    PrefixSchedule,
    ScheduledSampling,
    TeacherForcing,
)
from pipeline.errors import UserError
from pipeline.estimators.rollouts import StepRollouts
from pipeline.models.unroll import generate
from pipeline.random import BatchRandom
from pipeline.types import Batch, Message, RelaxedTokens, make_caption_mask


def make_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_tokens_have_the_frequencies_of_their_probabilities():
    probabilities = torch.tensor([0.0, 0.1, 0.2, 0.7, 0.0])
    drawn = sample_tokens(probabilities.log().expand(40_000, 5), torch.rand(40_000, 1, generator=make_generator()))
    share = torch.bincount(drawn, minlength=5) / 40_000
    assert share[0] == share[4] == 0
    # The tolerance is four standard errors.
    torch.testing.assert_close(share, probabilities, atol=4 * (0.21 / 40_000) ** 0.5, rtol=0)


def test_sampling_stays_within_the_vocabulary_at_both_ends():
    ends = torch.tensor([[0.0], [1 - 2**-24]])
    assert sample_tokens(torch.zeros(2, 3), ends).tolist() == [0, 2]
    assert sample_tokens(torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(2, 3), ends).tolist() == [1, 1]


@pytest.mark.parametrize("words", [5, 64, 65, 1000])
def test_sampling_inverts_the_cumulative_distribution(words):
    logits = torch.randn(200, words, dtype=torch.float64, generator=make_generator())
    uniform = torch.rand(200, 1, dtype=torch.float64, generator=make_generator(1))
    below = (logits.softmax(-1).cumsum(-1) <= uniform).sum(-1)
    assert torch.equal(sample_tokens(logits, uniform), below)


@pytest.mark.parametrize("words", [5, 64, 65, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_k_are_the_most_probable_tokens(words, dtype):
    logits = torch.randn(50, words, dtype=dtype, generator=make_generator())
    logits[7] = torch.arange(words)
    logits[8] = -torch.arange(words)
    values, ids = top_k(logits, 5)
    expected = logits.log_softmax(-1).topk(5, -1)
    torch.testing.assert_close(values, expected.values)
    assert torch.equal(ids, expected.indices)


@pytest.mark.parametrize("words", [5, 64, 65, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_tokens_come_last_and_each_once(words, dtype):
    logits = torch.randn(50, words, dtype=dtype, generator=make_generator())
    logits[:, -1] = logits[:10, 0] = -torch.inf
    logits[7, 1:] = logits[8, 4:] = -torch.inf  # fewer tokens than are requested
    logits[7, 0] = 1
    values, ids = top_k(logits, words)
    torch.testing.assert_close(values, logits.log_softmax(-1).sort(-1, descending=True).values)
    assert torch.equal(ids.sort(-1).values, torch.arange(words).expand(50, -1))
    torch.testing.assert_close(log_partition(logits), logits.logsumexp(-1))


@pytest.mark.parametrize("words", [1, 5, 16, 33, 130])
def test_a_large_logit_does_not_overflow_at_any_position(words):
    logits = torch.full((words, words), -1000.0).fill_diagonal_(1000)
    torch.testing.assert_close(log_partition(logits), torch.full((words,), 1000.0))
    assert torch.equal(sample_tokens(logits, torch.full((words, 1), 0.5)), torch.arange(words))


@pytest.mark.parametrize("words", [40, 64, 120])
def test_the_last_token_is_not_sampled_where_it_is_masked(words):
    """Rounding may leave a remainder at the end of the cumulative sum."""
    logits = torch.randn(5000, words, generator=make_generator())
    logits[:, -1] = -torch.inf
    drawn = sample_tokens(logits, torch.full((5000, 1), 1 - 2**-24))
    assert drawn.max() < words - 1


def test_equally_probable_tokens_occur_once_each():
    _, ids = top_k(torch.zeros(2, 100), 3)
    assert ids.tolist() == [[0, 1, 2]] * 2


RANDOM_CHANNELS = [
    Multinomial(5),
    Gumbel(5),
    PartialSampling(StraightThrough(5), 0.5, "token"),
    TeacherForcing(ScheduledSampling(0, 1, 0.5, 0.5)),
    ForcedPrefix(PrefixSchedule(0)),
    PrefixRollouts(each=5, prefixes=1),
]


@pytest.mark.parametrize("channel", RANDOM_CHANNELS, ids=repr)
def test_a_captions_draws_do_not_depend_on_the_other_unfinished_captions(toy, channel):
    rows, batch, t = 8 * channel.width, replace(toy.batch(), epoch=9), int(isinstance(channel, PrefixRollouts))
    logits, some = torch.randn(rows, 13), torch.arange(rows)[[3, 4, -2, -1]]
    every = channel.open(batch, 12, make_generator())(t, logits, torch.arange(rows))
    few = channel.open(batch, 12, make_generator())(t, logits[some], some)
    assert torch.equal(few.index, every.index[some])
    if few.next_input is not None:
        assert torch.equal(few.next_input, every.next_input[some])
        assert not torch.equal(every.next_input, every.index)
    if few.noise is not None:
        torch.testing.assert_close(few.noise, every.noise[some])
    if few.full is not None:
        assert torch.equal(few.full, every.full[some])


def choose_first_tokens(channel, toy, logits):
    return channel.open(toy.batch(), 12, make_generator())(0, logits, torch.arange(len(logits)))


@pytest.mark.parametrize("rho", [0.25, 0.75])
def test_a_share_rho_of_captions_passes_as_distributions(toy, rho):
    step = PartialSampling(StraightThrough(samples=500), rho, mix="caption").open(toy.batch(), 12, make_generator())
    first, second = (step(t, torch.randn(4000, 13), torch.arange(4000)).full for t in range(2))
    assert abs(first.float().mean() - rho) < 0.03
    assert torch.equal(first, second), "a caption passes as distributions in all steps or in none"


def test_a_share_rho_of_tokens_passes_as_distributions(toy):
    step = PartialSampling(StraightThrough(samples=500), 0.5, mix="token").open(toy.batch(), 12, make_generator())
    first, second = (step(t, torch.randn(4000, 13), torch.arange(4000)).full for t in range(2))
    assert abs(first.float().mean() - 0.5) < 0.04
    assert abs((first & second).float().mean() - 0.25) < 0.04


def test_the_next_input_is_the_distribution_or_with_feed_sample_the_token(toy):
    logits = torch.randn(8, 13)
    choice = choose_first_tokens(PartialSampling(rho=0.5), toy, logits)
    assert choice.feeds_relaxed
    assert 0 < choice.full.sum() < 8
    assert choice.next_input is None
    assert not choose_first_tokens(PartialSampling(rho=0.5, feed="sample"), toy, logits).feeds_relaxed


@pytest.mark.parametrize("channel", [StraightThrough(), PartialSampling(rho=1.0)])
def test_eos_passes_no_gradient_unless_eos_gradient_is_soft(toy, channel):
    logits = torch.zeros(8, 13)
    logits[::2, 0] = 30.0
    logits[1::2, 0] = -30.0
    choice = choose_first_tokens(channel, toy, logits)
    assert choice.straight_through.tolist() == [False, True] * 4
    soft = StraightThrough(eos_gradient="soft")
    channel = soft if isinstance(channel, StraightThrough) else PartialSampling(soft, rho=1.0)
    assert choose_first_tokens(channel, toy, logits).straight_through.all()


def test_greedy_takes_the_most_probable_token(toy):
    logits = torch.randn(8, 13)
    assert torch.equal(choose_first_tokens(Greedy(), toy, logits).index, logits.argmax(-1))


def test_teacher_forcing_emits_the_human_captions(toy):
    batch = toy.batch()
    step = TeacherForcing().open(batch, 12, make_generator())
    for t in range(batch.captions.shape[1]):
        assert torch.equal(step(t, torch.randn(8, 13), torch.arange(8)).index, batch.captions[:, t])


def test_scheduled_sampling_feeds_a_growing_share_of_sampled_tokens(toy):
    schedule = ScheduledSampling(start=0, every=5, increment=0.05, max_share=0.25)
    assert [schedule.share(e) for e in (0, 4, 5, 10, 24, 25, 99)] == [0, 0, 0.05, 0.1, 0.2, 0.25, 0.25]
    later = ScheduledSampling(start=3, every=2, increment=0.1, max_share=0.25)
    assert [later.share(e) for e in range(10)] == [0, 0, 0, 0, 0, 0.1, 0.1, 0.2, 0.2, 0.25]
    batch = toy.batch()
    object.__setattr__(batch, "epoch", 99)
    logits = torch.full((8, 13), -20.0)
    logits[:, 7] = 20
    fed = torch.stack(
        [
            TeacherForcing(ScheduledSampling(0, 1, 0.5, 0.5))
            .open(batch, 12, make_generator(s))(0, logits, torch.arange(8))
            .next_input
            for s in range(200)
        ]
    )
    fed_share = (fed == 7).float().mean()
    human_share = (batch.captions[:, 0] == 7).float().mean()
    assert abs(float(fed_share) - (0.5 + 0.5 * float(human_share))) < 0.06
    assert ((fed == 7) | (fed == batch.captions[:, 0])).all()


def test_which_inputs_are_sampled_does_not_determine_their_tokens(toy):
    batch = replace(toy.batch(), epoch=9, captions=torch.full((8, 6), 12))
    logits = torch.zeros(8, 13)
    logits[:, 12] = -torch.inf  # the human captions' token is never sampled
    channel = TeacherForcing(ScheduledSampling(0, 1, 0.25, 0.25))
    fed = torch.cat(
        [channel.open(batch, 12, make_generator(s))(0, logits, torch.arange(8)).next_input for s in range(300)]
    )
    shares = fed[fed != 12].bincount(minlength=12) / (fed != 12).sum()
    torch.testing.assert_close(shares, torch.full((12,), 1 / 12), atol=0.05, rtol=0)  # 600 tokens: ± .011


def test_equal_channels_are_equal_and_others_are_not():
    assert Multinomial() == Multinomial(1)
    assert PartialSampling() == PartialSampling(StraightThrough(), 0.75)
    assert len({Multinomial(), Greedy(), Greedy(dropout=True), StraightThrough(), PartialSampling(rho=0.0)}) == 5


def test_a_beam_returns_at_most_its_width():
    with pytest.raises(UserError, match="expected 1 to 2 samples, got 3"):
        Beam(width=2, samples=3)


def test_the_mask_has_the_tokens_up_to_the_first_eos():
    tokens = torch.tensor([[1, 2, 0, 0], [0, 0, 0, 0], [3, 3, 3, 3], [1, 0, 2, 0]])
    expected = [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 0]]
    assert make_caption_mask(tokens).int().tolist() == expected


def test_messages_without_relaxed_tokens_have_one_hot_distributions():
    tokens = torch.tensor([[2, 0], [1, 1]])
    expected = torch.tensor([[[0, 0, 1.0], [1, 0, 0]], [[0, 1, 0], [0, 1, 0]]])
    for relaxed in (None, RelaxedTokens()):
        message = Message(tokens, make_caption_mask(tokens), torch.arange(2), 1, relaxed=relaxed)
        torch.testing.assert_close(message.distributions(2), expected)


def test_gumbel_tokens_have_the_frequencies_of_their_probabilities_at_any_temperature():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = probabilities.log().expand(40_000, 4) + 1
    for temperature in (0.3, 1.0, 5.0):
        channel, unused = Gumbel(temperature=temperature), torch.zeros(40_000, 1)
        numbers = BatchRandom(Batch(torch.arange(40_000), unused, unused, unused, unused), make_generator(3))
        index, noise = channel.sample(logits, numbers, torch.arange(40_000))
        shares = index.bincount(minlength=4) / len(index)
        torch.testing.assert_close(shares, probabilities, atol=0.01, rtol=0)
        soft = channel.relax(logits, noise, index)
        assert torch.equal(soft.argmax(-1), index)
        torch.testing.assert_close(soft.sum(-1), torch.ones(len(soft)))


def test_the_number_of_forced_tokens_falls_from_epoch_to_epoch():
    schedule = PrefixSchedule(start=16, every=2, decrement=5)
    assert [schedule.length(epoch) for epoch in range(9)] == [16, 16, 11, 11, 6, 6, 1, 1, 0]


def test_a_forced_prefix_is_followed_by_sampled_tokens(toy):
    batch = toy.batch()
    speaker = toy.agents().speaker
    message = generate(speaker, batch, ForcedPrefix(PrefixSchedule(start=2)), make_generator())
    assert message.forced == 2
    assert torch.equal(message.tokens[:, :2], batch.captions[:, :2])
    assert not torch.equal(message.tokens[:, 2:], batch.captions[:, 2 : message.tokens.shape[1]])
    forced, drawn = message.token_mask("forced"), message.token_mask("drawn")
    assert torch.equal(forced | drawn, message.mask)
    assert not (forced & drawn).any()
    assert not forced[:, 2:].any()
    assert not drawn[:, :2].any()
    assert ForcedPrefix(PrefixSchedule(start=2)).samples == 1


def test_an_empty_prefix_gives_an_ordinary_sample(toy):
    speaker = toy.agents().speaker
    empty, ordinary = (
        generate(speaker, toy.batch(), channel, make_generator())
        for channel in (ForcedPrefix(PrefixSchedule(0)), Multinomial())
    )
    assert torch.equal(empty.tokens, ordinary.tokens)
    assert empty.forced == ordinary.forced == 0
    assert torch.equal(empty.token_mask("drawn"), empty.mask)


def test_an_ended_caption_is_not_continued(toy):
    batch = toy.batch()
    batch.captions[0, 1:] = 0
    message = generate(toy.agents().speaker, batch, PrefixRollouts(each=2, prefixes=3), make_generator())
    first = message.tokens.view(len(batch), 3, 2, -1)[0]
    assert torch.equal(first[0, :, 0], batch.captions[0, 0].expand(2))
    assert not first[1:].any()


DROPOUT_BY_CHANNEL = [
    (Multinomial(), True),
    (Greedy(), False),
    (Greedy(dropout=True), True),
    (Beam(3), False),
    (StraightThrough(), True),
    (Gumbel(), True),
    (PartialSampling(), True),
    (TeacherForcing(), True),
    (TeacherForcing(ScheduledSampling(0, 1, 0.5, 0.5)), True),
    (ForcedPrefix(PrefixSchedule(2)), True),
    (PrefixRollouts(each=2, prefixes=2), True),
    (SearchTrajectory(Beam(2)), False),
    (BanToken(Multinomial(), 12), False),
    (NoRepeatNgram(Multinomial(), 2), False),
]


@pytest.mark.parametrize(
    ("channel", "keeps"), DROPOUT_BY_CHANNEL, ids=[repr(channel) for channel, _ in DROPOUT_BY_CHANNEL]
)
def test_a_channel_keeps_or_drops_the_dropout_of_a_speaker_in_training(toy, channel, keeps):
    """Without dropout, speakers of equal weights generate equal captions at any dropout rate."""
    found = []
    for dropout in (0.0, 0.9):
        speaker = toy.agents(dropout=dropout).speaker.train()
        with torch.no_grad():
            speaker.logit.weight.mul_(4)
        found.append(StepRollouts(speaker, replace(toy.batch(), epoch=5), 1).get_message(channel))
        assert speaker.training
    plain, with_dropout = found
    same = torch.equal(plain.tokens, with_dropout.tokens)
    if same and plain.log_probs is not None:
        same = torch.equal(plain.log_probs, with_dropout.log_probs)
    assert same is not keeps


def test_continuations_are_generated_with_dropout(toy):
    """Continuations estimate the scores of training captions, which are sampled with dropout (Liu et al. 2017)."""
    found = []
    for dropout in (0.0, 0.9):
        speaker = toy.agents(dropout=dropout).speaker.train()
        rollouts = StepRollouts(speaker, toy.batch(), 1)
        rollouts._messages[Multinomial()] = generate(
            toy.agents().speaker.eval(), toy.batch(), Multinomial(), make_generator()
        )
        found.append(rollouts.continue_prefixes(Multinomial(), 20).tokens)
    assert not torch.equal(*found)
