"""Channels without repeated n-grams, and teacher forcing of searched captions."""

import pytest
import torch

from pipeline.channels.corrupted import CorruptedCaptions
from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.search import NoRepeatNgram, SearchTrajectory
from pipeline.estimators.rollouts import StepRollouts
from pipeline.models.unroll import generate

RNG = torch.Generator()


def generate_tokens(toy, channel, decoder="att2in"):
    speaker = toy.agents(decoder=decoder).speaker.eval()
    with torch.no_grad():
        speaker.logit.bias[0] -= 3  # long captions
        speaker.logit.bias[2:4] += 2  # makes the speaker repeat words
    return generate(speaker, toy.batch(), channel, RNG.manual_seed(0)).tokens.tolist()


def has_repeated_ngram(tokens: list[int], n: int) -> bool:
    """Return whether a caption has an n-gram twice."""
    words = [word for word in tokens if word]
    spans = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return len(set(spans)) < len(spans)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("channel", [Greedy(), Beam(3), Multinomial(4, requires_grad=False)])
def test_no_n_gram_is_repeated(toy, decoder, channel, n):
    assert any(has_repeated_ngram(tokens, n) for tokens in generate_tokens(toy, channel, decoder))
    assert not any(has_repeated_ngram(tokens, n) for tokens in generate_tokens(toy, NoRepeatNgram(channel, n), decoder))


def test_a_caption_without_repetition_is_unchanged(toy):
    speaker = toy.agents().speaker.eval()
    free = generate(speaker, toy.batch(), Greedy(), RNG).tokens.tolist()
    kept = generate(speaker, toy.batch(), NoRepeatNgram(Greedy(), 2), RNG).tokens.tolist()
    repeated = [has_repeated_ngram(tokens, 2) for tokens in free]
    assert set(repeated) == {True, False}
    assert [own == other for own, other in zip(kept, free, strict=True)] == [not each for each in repeated]
    assert generate(speaker, toy.batch(), NoRepeatNgram(Greedy(), 9), RNG).tokens.tolist() == free


def test_a_searched_caption_has_the_gradient_of_teacher_forcing(toy):
    agents, search = toy.agents(dropout=0.5), NoRepeatNgram(Beam(3), 2)
    rollouts = StepRollouts(agents.speaker.train(), toy.batch(), seed=1)
    message = rollouts.get_message(SearchTrajectory(search))
    assert message.tokens is rollouts.get_message(search).tokens
    assert rollouts.get_message(search).log_probs is None
    message.log_probs.sum().backward()
    assert agents.speaker.word.weight.grad.abs().sum() > 0
    other = StepRollouts(agents.speaker.eval(), toy.batch(), seed=2).get_message(SearchTrajectory(search))
    torch.testing.assert_close(other.log_probs, message.log_probs)  # search and teacher forcing use no dropout


def test_every_kind_of_corruption_occurs(toy):
    batch, ways = toy.batch(), set()
    whole = [[word for word in row if word] for row in batch.captions.tolist()]
    for seed in range(20):
        rows = CorruptedCaptions().captions(batch, RNG.manual_seed(seed)).tolist()
        captions = [[word for word in row if word] for row in rows]
        assert all(len(row) == batch.captions.shape[1] for row in rows)
        for before, after in zip(whole, captions, strict=True):
            assert after != before
            if sorted(after) == sorted(before):
                ways.add("moved")
            elif len(after) < len(before):
                ways.add("removed")
            else:
                ways.add("repeated" if set(after) <= set(before) else "inserted")
    assert ways == {"moved", "removed", "repeated", "inserted"}
