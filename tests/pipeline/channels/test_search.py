"""Channels without repeated n-grams, teacher forcing of searched captions, and kinds of corruption."""

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
        speaker.logit.bias[2:4] += 2  # so that the speaker repeats words
    return generate(speaker, toy.batch(), channel, RNG.manual_seed(0)).tokens.tolist()


def has_repeated_ngram(tokens: list[int], n: int) -> bool:
    """Return whether a caption has an n-gram twice."""
    caption = [word for word in tokens if word]
    spans = [tuple(caption[i : i + n]) for i in range(len(caption) - n + 1)]
    return len(set(spans)) < len(spans)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("channel", [Greedy(), Beam(3), Multinomial(4, requires_grad=False)])
def test_no_n_gram_is_repeated(toy, decoder, channel, n):
    assert any(has_repeated_ngram(tokens, n) for tokens in generate_tokens(toy, channel, decoder))
    assert not any(has_repeated_ngram(tokens, n) for tokens in generate_tokens(toy, NoRepeatNgram(channel, n), decoder))


def test_only_captions_with_repetition_change(toy):
    speaker = toy.agents().speaker.eval()
    plain = generate(speaker, toy.batch(), Greedy(), RNG).tokens.tolist()
    filtered = generate(speaker, toy.batch(), NoRepeatNgram(Greedy(), 2), RNG).tokens.tolist()
    repeated = [has_repeated_ngram(tokens, 2) for tokens in plain]
    assert set(repeated) == {True, False}
    assert [one == other for one, other in zip(filtered, plain, strict=True)] == [not each for each in repeated]
    assert generate(speaker, toy.batch(), NoRepeatNgram(Greedy(), 9), RNG).tokens.tolist() == plain


def test_a_searched_caption_is_teacher_forced_without_dropout_and_with_a_gradient(toy):
    agents, search = toy.agents(dropout=0.5), NoRepeatNgram(Beam(3), 2)
    rollouts = StepRollouts(agents.speaker.train(), toy.batch(), seed=1)
    message = rollouts.get_message(SearchTrajectory(search))
    assert message.tokens is rollouts.get_message(search).tokens
    assert rollouts.get_message(search).log_probs is None
    message.log_probs.sum().backward()
    assert agents.speaker.word.weight.grad.abs().sum() > 0
    other = StepRollouts(agents.speaker.eval(), toy.batch(), seed=2).get_message(SearchTrajectory(search))
    torch.testing.assert_close(other.log_probs, message.log_probs)  # search and teacher forcing use no dropout


def test_corruption_moves_removes_repeats_and_inserts_words(toy):
    batch, kinds = toy.batch(), set()
    human = [[word for word in row if word] for row in batch.captions.tolist()]
    for seed in range(20):
        rows = CorruptedCaptions().captions(batch, RNG.manual_seed(seed)).tolist()
        corrupted = [[word for word in row if word] for row in rows]
        assert all(len(row) == batch.captions.shape[1] for row in rows)
        for caption, other in zip(human, corrupted, strict=True):
            assert other != caption
            if sorted(other) == sorted(caption):
                kinds.add("moved")  # swapped or shuffled
            elif len(other) < len(caption):
                kinds.add("removed")
            else:
                kinds.add("repeated" if set(other) <= set(caption) else "inserted")
    assert kinds == {"moved", "removed", "repeated", "inserted"}
