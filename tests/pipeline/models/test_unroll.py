import itertools
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from pipeline.channels.hard import Beam, Multinomial
from pipeline.models import unroll
from pipeline.models.att2in import Att2in
from pipeline.models.decoder import RolloutDropout
from pipeline.models.lstm import PooledLstm
from pipeline.models.transformer import Transformer
from pipeline.models.unroll import generate, teacher_force
from pipeline.random import BatchRandom
from pipeline.types import Batch


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_one_step_by_hand():
    """Compare a step of Att2in2 with the published formulas, for an image with two regions and a masked region."""
    torch.manual_seed(0)
    speaker = Att2in(vocabulary=3, region_size=2, words=2, hidden=2, attention=2, dropout=0.5, max_words=4).eval()
    batch = Batch(
        images=torch.tensor([0]),
        pooled=torch.zeros(1, 1),
        regions=torch.tensor([[[1.0, -2.0], [0.5, 3.0], [9.0, 9.0]]]),
        region_mask=torch.tensor([[True, True, False]]),
        captions=torch.zeros(1, 4, dtype=torch.int64),
    )
    h, c = torch.tensor([[0.3, -0.4]]), torch.tensor([[0.1, 0.2]])
    state = replace(
        speaker.begin(batch, speaker.encode_image(batch), RolloutDropout(0.0, BatchRandom(batch, None)), 1), h=h, c=c
    )
    new_h, next_state = speaker.step(speaker.word(torch.tensor([2])), state)
    new_c = next_state.c

    regions = F.relu(batch.regions[0] @ speaker.region.weight.T + speaker.region.bias)
    keys = regions @ speaker.key.weight.T + speaker.key.bias
    query = speaker.query(h)[0]
    scores = torch.stack([speaker.weight(torch.tanh(k + query)) for k in keys]).squeeze(-1)
    share = scores.softmax(0)[:2] / scores.softmax(0)[:2].sum()
    attended = share[0] * regions[0] + share[1] * regions[1]
    x = F.relu(speaker.word.weight[2])
    sums = speaker.from_word(x) + speaker.from_state(h[0])
    i, f, o = sums[0:2].sigmoid(), sums[2:4].sigmoid(), sums[4:6].sigmoid()
    candidate = sums[6:10] + speaker.from_regions(attended)
    expected_c = f * c[0] + i * torch.maximum(candidate[:2], candidate[2:])
    torch.testing.assert_close(new_c[0], expected_c)
    torch.testing.assert_close(new_h[0], o * torch.tanh(expected_c))


def test_log_probs_of_a_message_equal_those_of_teacher_forcing(toy, decoder):
    speaker, batch = toy.agents(decoder=decoder).speaker, toy.batch()
    message = generate(speaker, batch, Multinomial(samples=3), rng())
    assert len(message) == 24
    assert message.images.tolist() == [i for i in range(8) for _ in range(3)]
    for row in (0, 7, 23):
        target = batch.to("cpu")
        image = int(message.images[row])
        target.captions[image] = 0
        target.captions[image, : message.tokens.shape[1]] = message.tokens[row]
        forced = teacher_force(speaker, target)
        width = message.tokens.shape[1]
        torch.testing.assert_close(forced.log_probs[image, :width], message.log_probs[row])


def test_tokens_after_eos_are_eos(toy, decoder):
    speaker, batch = toy.agents(decoder=decoder).speaker, toy.batch()
    message = generate(speaker, batch, Multinomial(samples=20), rng())
    with_eos = 0
    for words, mask, log_probs in zip(message.tokens.tolist(), message.mask.tolist(), message.log_probs, strict=True):
        end = words.index(0) if 0 in words else len(words)
        assert not any(words[end:])
        assert sum(mask) == min(end + 1, len(words))
        assert (log_probs[sum(mask) :] == 0).all()
        with_eos += end < len(words)
    assert 0 < with_eos < len(message), "expected captions with EOS and captions without EOS; change the seed"


def test_a_masked_region_changes_nothing(toy, decoder):
    speaker, batch = toy.agents(decoder=decoder).speaker, toy.batch()
    expected = teacher_force(speaker, batch).log_probs
    batch.regions[0, 2] = 100.0  # masked
    torch.testing.assert_close(teacher_force(speaker, batch).log_probs, expected)


def _enumerate_best(speaker, batch, image):
    """Return the log-probability and the words of the image's most probable caption of at most `max_words` words."""
    best, best_words = -float("inf"), ()
    for words in itertools.product(range(speaker.vocabulary + 1), repeat=speaker.max_words):
        end = words.index(0) if 0 in words else len(words)
        if any(words[end:]):
            continue
        target = batch.to("cpu")
        target.captions[image] = torch.tensor(words)
        total = float(teacher_force(speaker, target).log_probs[image].sum())
        if total > best:
            best, best_words = total, words
    return best, best_words


def _sum_log_probs(speaker, batch, message, sample=0):
    """Return the log-probability (B,) of each image's caption number `sample` in a message."""
    tokens = message.tokens[sample :: message.samples]
    target = batch.to("cpu")
    target.captions[:] = F.pad(tokens, (0, target.captions.shape[1] - tokens.shape[1]))
    return teacher_force(speaker, target).log_probs.sum(1)


@pytest.mark.parametrize(
    "make",
    [
        partial(Att2in, words=4, hidden=4, attention=3),
        partial(Transformer, hidden=4, layers=1, heads=2),
        partial(PooledLstm, words=4, hidden=4),
    ],
)
def test_an_exhaustive_beam_returns_the_most_probable_caption(make):
    torch.manual_seed(1)
    speaker = make(vocabulary=3, region_size=2, max_words=3).eval()
    with torch.no_grad():
        speaker.logit.weight *= 6
        images = 4
        batch = Batch(
            torch.arange(images),
            torch.zeros(images, 1),
            torch.randn(images, 2, 2),
            torch.ones(images, 2, dtype=torch.bool),
            torch.zeros(images, 3, dtype=torch.int64),
        )
        message = generate(speaker, batch, Beam(width=40), rng())
        three_best = generate(speaker, batch, Beam(width=40, samples=3), rng())
        greedy = generate(speaker, batch, Beam(width=1), rng())
        for image in range(images):
            best, words = _enumerate_best(speaker, batch, image)
            found = message.tokens[image].tolist()
            assert tuple(found + [0] * (3 - len(found))) == words
            assert abs(float(_sum_log_probs(speaker, batch, message)[image]) - best) < 1e-5
        totals = torch.stack([_sum_log_probs(speaker, batch, three_best, k) for k in range(3)], 1)
        assert (totals[:, 0] >= totals[:, 1]).all()
        assert (totals[:, 1] >= totals[:, 2]).all()
        assert (_sum_log_probs(speaker, batch, message) >= _sum_log_probs(speaker, batch, greedy) - 1e-6).all()


def test_dropout_keeps_the_mean_and_a_rows_mask_does_not_depend_on_other_rows(toy):
    batch = toy.batch()
    x = torch.ones(400, 100)
    dropped = RolloutDropout(0.25, BatchRandom(batch, rng()))(x, None, 50)
    torch.testing.assert_close(dropped.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert abs(float((dropped > 0).float().mean()) - 0.75) < 0.01
    rows = torch.tensor([3, 399])
    assert torch.equal(RolloutDropout(0.25, BatchRandom(batch, rng()))(x[:2], rows, 50), dropped[rows])
    assert torch.equal(RolloutDropout(0.0, BatchRandom(batch, rng()))(x), x)


def test_a_part_of_a_batch_draws_the_random_numbers_of_its_images(toy):
    batch = toy.batch()
    whole = BatchRandom(batch, rng()).rand_like(torch.zeros(16, 3), width=2)
    part = replace(batch, images=batch.images[2:5], first=2, whole_size=8)
    rows = torch.tensor([0, 5])
    assert torch.equal(BatchRandom(part, rng()).rand_like(torch.zeros(2, 3), rows, 2), whole[[4, 9]])
    assert torch.equal(BatchRandom(part, rng()).rand_like(torch.zeros(6, 3), width=2), whole[4:10])


@pytest.mark.parametrize("forced", [False, True], ids=["sampling", "teacher forcing"])
def test_hidden_states_yield_the_log_probs_of_the_tokens(toy, forced, decoder):
    speaker, batch = toy.agents(decoder=decoder).speaker, toy.batch()
    message = teacher_force(speaker, batch) if forced else generate(speaker, batch, Multinomial(3), rng())
    states = message.states()
    assert not states.requires_grad
    assert states.shape == (*message.tokens.shape, speaker.hidden)
    log_probs = speaker.logit(states).log_softmax(-1).gather(2, message.tokens.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(log_probs[message.mask], message.log_probs[message.mask])


def test_dropout_and_tokens_have_their_own_random_numbers(toy, monkeypatch):
    x, recorded = torch.zeros(8, 3), []

    def record_numbers(speaker, batch_random):
        recorded.append(batch_random.rand_like(x))  # before the first token is drawn
        return RolloutDropout(0.0, batch_random)

    monkeypatch.setattr(unroll, "_make_dropout", record_numbers)
    generate(toy.agents().speaker, toy.batch(), Multinomial(), rng(5))
    (dropout_numbers,) = recorded
    assert not torch.equal(dropout_numbers, BatchRandom(toy.batch(), rng(5)).rand_like(x))
