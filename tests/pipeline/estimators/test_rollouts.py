"""Rollouts of a step: the captions' dependence on seeds, and the paths of their gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import pad

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import StraightThrough
from pipeline.channels.teacher_forcing import ForcedPrefix, PrefixRollouts, PrefixSchedule
from pipeline.estimators.credit import MonteCarloCredit
from pipeline.estimators.discrimination import BinaryDiscrimination
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import Detached, ScoreFunction, build_surrogate
from pipeline.models.inference import optimise_for_batch
from pipeline.models.unroll import generate
from pipeline.scores.discriminability import Hinge
from pipeline.scores.naturalness import CiderScore
from pipeline.types import Message, make_caption_mask


def has_no_gradient(agent) -> bool:
    return all(p.grad is None or not p.grad.any() for p in agent.parameters())


@pytest.mark.parametrize("channel", [StraightThrough(), PartialSampling(rho=0.5), PartialSampling(rho=1.0)], ids=str)
def test_a_detached_score_of_relaxed_captions_updates_the_listener_alone(toy, channel):
    agents = toy.agents()
    rollouts = StepRollouts(agents.speaker, toy.batch(), 1)
    Detached(channel).surrogate(Hinge(agents.listener), rollouts)[0].backward()
    assert has_no_gradient(agents.speaker)
    assert not has_no_gradient(agents.listener)


def test_a_discriminator_of_relaxed_captions_gives_the_speaker_no_gradient(toy):
    agents = toy.agents()

    class EmbeddingLogOdds:
        differentiable = True

        def __call__(self, message, batch):
            return agents.listener.encode_text(message).sum(1)

    BinaryDiscrimination(PartialSampling(rho=0.5)).surrogate(
        EmbeddingLogOdds(), StepRollouts(agents.speaker, toy.batch(), 1)
    )[0].backward()
    assert has_no_gradient(agents.speaker)
    assert not has_no_gradient(agents.listener)


def test_no_gradient_goes_through_an_advantage():
    tokens = torch.tensor([[1, 0], [2, 3]])
    message = Message(
        tokens, make_caption_mask(tokens), torch.arange(2), 1, torch.full((2, 2), -1.0, requires_grad=True)
    )
    advantage = torch.tensor([2.0, -1.0], requires_grad=True)
    build_surrogate(torch.zeros(2), message, advantage)[0].backward()
    assert advantage.grad is None
    assert message.log_probs.grad.any()


def test_every_parameter_of_the_speaker_has_a_gradient_also_after_a_greedy_baseline(toy, decoder):
    for with_baseline in (False, True):
        speaker = toy.agents(decoder=decoder).speaker
        rollouts = StepRollouts(speaker, toy.batch(), 1)
        if with_baseline:
            with torch.no_grad():
                rollouts.get_message(Greedy())
        ScoreFunction(Multinomial()).surrogate(CiderScore(toy.cider), rollouts)[0].backward()
        assert speaker.region.weight.grad is not None, "expected a gradient of the region embedding"
        assert [name for name, p in speaker.named_parameters() if p.grad is None] == []


def test_a_frozen_speaker_has_no_dropout_and_stays_in_evaluation_mode(toy):
    found = []
    for dropout in (0.0, 0.9):
        speaker = toy.agents(dropout=dropout).speaker.eval()
        rollouts = StepRollouts(speaker, toy.batch(), 1)
        found.append(
            (rollouts.get_message(Multinomial(5)).tokens, rollouts.continue_prefixes(Multinomial(5), 2).tokens)
        )
        assert not speaker.training
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_continuations_have_their_own_stream_for_every_channel(toy):
    """Continuations of the same captions differ between channels, and each channel's key names its random stream."""
    batch, speaker = toy.batch(), toy.agents().speaker
    rollouts = StepRollouts(speaker, batch, 1)
    message = rollouts.get_message(Multinomial())
    channels = (Multinomial(), ForcedPrefix(PrefixSchedule(0)))
    rollouts._messages[channels[1]] = message
    found = [rollouts.continue_prefixes(channel, 6).tokens for channel in channels]
    assert not torch.equal(*found)
    steps = message.tokens.shape[1]
    ends = PrefixRollouts(6, steps - 1)
    for channel, tokens in zip(channels, found, strict=True):
        rng = rollouts._make_rng(f"{ends.rng_key} of {channel.rng_key}")
        expected = generate(speaker, replace(batch, captions=message.tokens), ends, rng).tokens
        expected = pad(expected, (0, tokens.shape[1] - expected.shape[1]))
        generated = ~((message.tokens[:, :-1] == 0).repeat_interleave(6, 1).flatten())
        assert torch.equal(tokens[generated], expected[generated])


def test_a_part_of_a_batch_has_the_captions_and_continuations_that_it_has_in_the_whole(toy):
    batch, speaker, channel = toy.batch(), toy.agents().speaker, Multinomial(2)
    whole = StepRollouts(speaker, batch, 1)
    names = ("images", "pooled", "regions", "region_mask", "captions")
    part = replace(batch, **{name: getattr(batch, name)[4:] for name in names}, first=4, whole_size=8)
    part_rollouts = StepRollouts(speaker, part, 1)
    generated, expected_tokens = part_rollouts.get_message(channel).tokens, whole.get_message(channel).tokens[8:]
    width = min(generated.shape[1], expected_tokens.shape[1])
    assert torch.equal(generated[:, :width], expected_tokens[:, :width])
    steps = [max(2, tokens.shape[1]) - 1 for tokens in (generated, whole.get_message(channel).tokens)]
    found, expected = part_rollouts.continue_prefixes(channel, 3).tokens, whole.continue_prefixes(channel, 3).tokens
    found, expected = (t.view(-1, n, 3, t.shape[1]) for t, n in zip((found, expected), steps, strict=True))
    assert steps[0] == steps[1], "expected this seed's longest caption in the second half"
    assert torch.equal(found, expected[8:])


def test_every_score_has_its_own_credit(toy):
    """Two scores of the same captions share their continuations and have different credits."""
    rollouts, credit, channel = StepRollouts(toy.agents().speaker, toy.batch(), 1), MonteCarloCredit(2), Multinomial()

    class CaptionLength:
        differentiable = False

        def __call__(self, message, batch):
            return message.mask.sum(1).float()

    found = []
    for score in (CiderScore(toy.cider), CaptionLength()):
        value = score(rollouts.get_message(channel), rollouts.batch)
        found.append(credit(value, score, channel, rollouts))
    assert not torch.equal(*found)
    assert len(rollouts._continuations) == 1


def test_advantages_and_credits_have_no_graph(toy):
    agents = toy.agents()
    rollouts, hinge = StepRollouts(agents.speaker, toy.batch(), 1), Hinge(agents.listener)
    value = hinge(rollouts.get_message(Multinomial()), rollouts.batch)
    assert value.requires_grad
    assert not ScoreFunction(Multinomial()).advantage(value, hinge, rollouts).requires_grad
    assert not MonteCarloCredit(2)(value, hinge, Multinomial(), rollouts).requires_grad


def test_a_caption_with_even_odds_does_not_count_as_human(toy):
    class EvenLogOdds:
        differentiable = False

        def __call__(self, message, batch):
            return torch.full((len(message),), 0.0 if message.tokens is batch.captions else -1.0)

    _, report = BinaryDiscrimination(Multinomial()).surrogate(
        EvenLogOdds(), StepRollouts(toy.agents().speaker, toy.batch(), 1)
    )
    assert float(report["accuracy"]) == 0.5


@pytest.mark.parametrize("channel", [Greedy(), Beam(3)], ids=repr)
def test_captions_without_gradient_equal_the_speakers_own(toy, channel):
    agents, batch = toy.agents(dropout=0.3), toy.batch()
    agents.speaker.train()
    rollouts = StepRollouts(agents.speaker, batch, 3)
    found = rollouts.get_message(channel)
    agents.speaker.eval()
    assert torch.equal(found.tokens, generate(agents.speaker, batch, channel, torch.Generator()).tokens)
    assert optimise_for_batch(agents.speaker, len(batch) * channel.width) is not agents.speaker
    assert optimise_for_batch(agents.speaker, 4) is agents.speaker  # too few captions for a table of the vocabulary
