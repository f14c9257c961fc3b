"""What the unroll gives is what the plain one gives: captions, what is heard of them, and every gradient."""

from __future__ import annotations

import pytest
import torch
from plain import PlainListener, PlainSpeaker

from pipeline.channels import (
    Beam,
    Forced,
    Greedy,
    Gumbel,
    Multinomial,
    PartialSampling,
    ScheduledSampling,
    StraightThrough,
)
from pipeline.models import unrolled

SAMPLES = 4


def through_words():
    soft = StraightThrough(SAMPLES, "soft")
    return {
        "st": StraightThrough(SAMPLES),
        "st soft ending": soft,
        "gumbel": Gumbel(SAMPLES, temperature=0.7),
        "psst": PartialSampling(StraightThrough(SAMPLES), 0.5),
        "psst soft ending": PartialSampling(soft, 0.5),
        "psst of words": PartialSampling(StraightThrough(SAMPLES), 0.5, "token"),
        "psst along samples": PartialSampling(StraightThrough(SAMPLES), 0.5, "caption", "sample"),
        "psst of gumbel words": PartialSampling(Gumbel(SAMPLES, temperature=0.7), 0.5, "token"),
        "all whole": PartialSampling(StraightThrough(SAMPLES), 1.0),
        "none whole": PartialSampling(StraightThrough(SAMPLES), 0.0),
    }


def by_likelihood():
    return {
        "multinomial": Multinomial(SAMPLES),
        "forced": Forced(),
        "scheduled": Forced(ScheduledSampling(0, 1, 0.5, 0.5)),
    }


@pytest.fixture(params=[0.0, 4.0], ids=["captions of all lengths", "short captions"])
def world(toy, request, monkeypatch):
    """Agents in double precision and in training; some captions end early, and are no longer carried along."""
    monkeypatch.setattr(unrolled, "CACHED", 100)  # what is cut at the papers' size is cut here
    agents, batch = toy.agents(dropout=0.3), toy.batch()
    speaker, listener = agents.speaker.double().train(), agents.listener.double().train()
    with torch.no_grad():
        speaker.logit.bias[0] += request.param
    object.__setattr__(batch, "regions", batch.regions.double())
    object.__setattr__(batch, "epoch", 9)
    return speaker, listener, batch


def rng():
    return torch.Generator().manual_seed(3)


def same_gradients(loss, expected, modules, others):
    names = [name for module in modules for name, _ in module.named_parameters(prefix=type(module).__name__)]
    ours, theirs = ([p for module in side for p in module.parameters()] for side in (modules, others))
    found = torch.autograd.grad(loss, ours, retain_graph=True, allow_unused=True)
    wanted = torch.autograd.grad(expected, theirs, retain_graph=True, allow_unused=True)
    reached = 0
    for name, left, right in zip(names, found, wanted, strict=True):
        if right is not None and right.abs().max() > 1e-12:
            reached += 1
            torch.testing.assert_close(left, right, atol=1e-12, rtol=1e-9, msg=lambda text, n=name: f"{n}: {text}")
    return reached


def same(found, wanted, modules, others):
    """Equal values and equal gradients of a random sum of them; how many weights have one."""
    torch.testing.assert_close(found, wanted)
    weight = torch.randn(wanted.shape, dtype=wanted.dtype)
    return same_gradients((found * weight).sum(), (wanted * weight).sum(), modules, others)


@pytest.mark.parametrize("name", through_words())
def test_what_is_heard_of_captions_is_what_the_plain_unroll_has(world, name):
    speaker, listener, batch = world
    plain, other = PlainSpeaker.of(speaker), PlainListener.of(listener)
    message = speaker.speak(batch, through_words()[name], rng())
    tokens, _, said = plain.plain_speak(batch, through_words()[name], rng())
    assert torch.equal(message.tokens, tokens)
    assert 0 < (tokens == 0).sum() < tokens.numel()
    assert same(message.rows(speaker.vocabulary), said, (speaker,), (plain,)) >= 10
    assert same(listener.hear(message), other.plain_hear(tokens, said), (speaker, listener), (plain, other)) >= 15


@pytest.mark.parametrize("name", by_likelihood())
def test_log_probabilities_of_words_are_what_the_plain_unroll_has(world, name):
    speaker, _, batch = world
    plain = PlainSpeaker.of(speaker)
    message = speaker.speak(batch, by_likelihood()[name], rng())
    tokens, log_probs, _ = plain.plain_speak(batch, by_likelihood()[name], rng())
    assert torch.equal(message.tokens, tokens)
    assert same(message.log_probs, log_probs, (speaker,), (plain,)) >= 10


def test_reading_is_the_plain_teacher_forcing(world):
    speaker, _, batch = world
    plain = PlainSpeaker.of(speaker)
    found, wanted = (who.read(batch, rng()) for who in (speaker, plain))
    assert 0 < (~wanted.mask).sum() < wanted.mask.numel()
    assert torch.equal(found.mask, wanted.mask)
    assert same(found.log_probs, wanted.log_probs, (speaker,), (plain,)) >= 10


@pytest.mark.parametrize("channel", [Greedy(), Beam(3), Beam(4, samples=2)])
def test_the_likeliest_captions_are_what_the_plain_unroll_has(world, channel):
    speaker, _, batch = world
    speaker.eval()
    ours, plain = (who.speak(batch, channel, rng()) for who in (speaker, PlainSpeaker.of(speaker)))
    assert torch.equal(ours.tokens, plain.tokens)
    assert torch.equal(ours.mask, plain.mask)
    assert ours.log_probs is None


def test_a_graph_may_be_gone_through_twice(world):
    speaker, listener, batch = world
    message = speaker.speak(batch, PartialSampling(StraightThrough(SAMPLES), 0.5), rng())
    loss = listener.hear(message).sum()
    weights = list(speaker.parameters())
    first = torch.autograd.grad(loss, weights, retain_graph=True)
    again = torch.autograd.grad(loss, weights)
    for left, right in zip(first, again, strict=True):
        torch.testing.assert_close(left, right)
