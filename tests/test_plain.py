"""The unroll gives the captions, text embeddings and gradients of the plain unroll."""

from __future__ import annotations

from copy import deepcopy

import plain
import pytest
import torch
from plain import PlainListener, plain_unroll

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import Gumbel, GumbelRao, ReinMax, StraightThrough
from pipeline.channels.teacher_forcing import (
    ForcedPrefix,
    PrefixRollouts,
    PrefixSchedule,
    ScheduledSampling,
    TeacherForcing,
)
from pipeline.models.att2in import Att2in
from pipeline.models.guided import GuidedDecoder
from pipeline.models.inference import optimise_for_decoding
from pipeline.models.transformer import Transformer
from pipeline.models.unroll import generate, teacher_force

SAMPLES = 4
MIN_WEIGHTS = 9  # weights with a gradient in the smallest speaker, the LSTM without attention; the listener has 5 more


def make_pathwise_channels():
    soft = StraightThrough(SAMPLES, "soft")
    return {
        "st": StraightThrough(SAMPLES),
        "st soft eos": soft,
        "gumbel": Gumbel(SAMPLES, temperature=0.7),
        "psst": PartialSampling(StraightThrough(SAMPLES), 0.5),
        "psst soft eos": PartialSampling(soft, 0.5),
        "psst of captions": PartialSampling(StraightThrough(SAMPLES), 0.5, "caption"),
        "psst along samples": PartialSampling(StraightThrough(SAMPLES), 0.5, feed="sample"),
        "psst of captions along samples": PartialSampling(StraightThrough(SAMPLES), 0.5, "caption", "sample"),
        "psst of gumbel captions": PartialSampling(Gumbel(SAMPLES, temperature=0.7), 0.5, "caption"),
        "reinmax": ReinMax(SAMPLES, temperature=1.5),
        "reinmax soft eos": ReinMax(SAMPLES, "soft"),
        "psst of reinmax": PartialSampling(ReinMax(SAMPLES), 0.5),
        "gumbel rao": GumbelRao(SAMPLES, temperature=0.7, k=3),
        "psst of gumbel rao": PartialSampling(GumbelRao(SAMPLES, temperature=0.7, k=3), 0.5),
        "psst rho 1": PartialSampling(StraightThrough(SAMPLES), 1.0),
        "psst rho 0": PartialSampling(StraightThrough(SAMPLES), 0.0),
    }


def make_score_function_channels():
    return {
        "multinomial": Multinomial(SAMPLES),
        "multinomial with entropies": Multinomial(SAMPLES, entropies=True),
        "teacher forcing": TeacherForcing(),
        "scheduled sampling": TeacherForcing(ScheduledSampling(0, 1, 0.5, 0.5)),
        "forced prefix": ForcedPrefix(PrefixSchedule(start=2, every=10)),
    }


@pytest.fixture(
    params=[0.0, pytest.param(4.0, marks=pytest.mark.slow)], ids=["captions of all lengths", "short captions"]
)
def world(toy, decoder, request):
    """Return agents in double precision and training mode, and a batch; some captions end early."""
    agents, batch = toy.agents(dropout=0.3, decoder=decoder), toy.batch()
    speaker, listener = agents.speaker.double().train(), agents.listener.double().train()
    with torch.no_grad():
        speaker.logit.bias[0] += request.param
    object.__setattr__(batch, "regions", batch.regions.double())
    object.__setattr__(batch, "epoch", 9)
    return speaker, listener, batch


def make_generator():
    return torch.Generator().manual_seed(3)


def compare_gradients(loss, expected_loss, modules, plain_modules):
    names = [name for module in modules for name, _ in module.named_parameters(prefix=type(module).__name__)]
    weights, plain_weights = (
        [weight for module in group for weight in module.parameters()] for group in (modules, plain_modules)
    )
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    expected = torch.autograd.grad(expected_loss, plain_weights, retain_graph=True, allow_unused=True)
    count = 0
    for name, left, right in zip(names, found, expected, strict=True):
        if right is None or right.abs().max() <= 1e-12:
            assert left is None or left.abs().max() < 1e-9, name
        else:
            count += 1
            torch.testing.assert_close(left, right, atol=1e-12, rtol=1e-9, msg=lambda text, n=name: f"{n}: {text}")
    return count


def compare_values(found, expected, modules, plain_modules):
    """Compare values and the gradients of their random weighted sum; return the number of weights with a gradient."""
    torch.testing.assert_close(found, expected)
    weight = torch.randn(expected.shape, dtype=expected.dtype)
    return compare_gradients((found * weight).sum(), (expected * weight).sum(), modules, plain_modules)


@pytest.mark.parametrize("name", make_pathwise_channels())
def test_text_embeddings_equal_those_of_the_plain_unroll(world, name):
    speaker, listener, batch = world
    plain_speaker, plain_listener = deepcopy(speaker), PlainListener.from_listener(listener)
    message = generate(speaker, batch, make_pathwise_channels()[name], make_generator())
    tokens, _, _, captions = plain_unroll(plain_speaker, batch, make_pathwise_channels()[name], make_generator())
    assert torch.equal(message.tokens, tokens)
    assert 0 < (tokens == 0).sum() < tokens.numel()
    assert (
        compare_values(message.distributions(speaker.vocabulary), captions, (speaker,), (plain_speaker,)) >= MIN_WEIGHTS
    )
    assert (
        compare_values(
            listener.encode_text(message),
            plain_listener.encode_distributions(tokens, captions),
            (speaker, listener),
            (plain_speaker, plain_listener),
        )
        >= MIN_WEIGHTS + 5
    )


@pytest.mark.parametrize("name", make_score_function_channels())
def test_log_probabilities_equal_those_of_the_plain_unroll(world, name):
    speaker, _, batch = world
    plain_speaker = deepcopy(speaker)
    message = generate(speaker, batch, make_score_function_channels()[name], make_generator())
    tokens, log_probs, entropies, _ = plain_unroll(
        plain_speaker, batch, make_score_function_channels()[name], make_generator()
    )
    assert torch.equal(message.tokens, tokens)
    assert compare_values(message.log_probs, log_probs, (speaker,), (plain_speaker,)) >= MIN_WEIGHTS
    assert (message.entropies is not None) == ("entropies" in name)
    if message.entropies is not None:
        assert compare_values(message.entropies, entropies, (speaker,), (plain_speaker,)) >= MIN_WEIGHTS
        found, expected = message.log_probs + 0.3 * message.entropies, log_probs + 0.3 * entropies
        assert compare_values(found, expected, (speaker,), (plain_speaker,)) >= MIN_WEIGHTS


def test_teacher_forcing_equals_the_plain_form_with_all_gradients(world):
    speaker, _, batch = world
    speaker.train(isinstance(speaker, Att2in))
    plain_speaker = deepcopy(speaker)
    found, expected = (
        teacher_force(speaker, batch, make_generator()),
        plain.plain_teacher_force(plain_speaker, batch, make_generator()),
    )
    assert 0 < (~expected.mask).sum() < expected.mask.numel()
    assert torch.equal(found.mask, expected.mask)
    assert compare_values(found.log_probs, expected.log_probs, (speaker,), (plain_speaker,)) >= MIN_WEIGHTS


@pytest.mark.parametrize("channel", [Greedy(), Beam(3), Beam(4, samples=2)])
def test_the_most_probable_captions_equal_those_of_the_plain_unroll(world, channel):
    speaker, _, batch = world
    speaker.eval()
    found, expected = (
        generate(speaker, batch, channel, make_generator()),
        plain.plain_generate(speaker, batch, channel, make_generator()),
    )
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.mask, expected.mask)
    assert found.log_probs is None
    assert torch.equal(
        generate(optimise_for_decoding(speaker), batch, channel, make_generator()).tokens, expected.tokens
    )


def test_the_inference_form_draws_the_same_tokens_and_has_no_gradient_for_att2in(world):
    speaker, _, batch = world
    speaker.eval()
    found = generate(optimise_for_decoding(speaker), batch, Multinomial(SAMPLES), make_generator())
    expected = generate(speaker, batch, Multinomial(SAMPLES), make_generator())
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.log_probs, expected.log_probs)
    assert expected.log_probs.requires_grad
    assert (optimise_for_decoding(speaker) is speaker) == (not isinstance(speaker, Att2in))
    if isinstance(speaker, Att2in):
        fast = optimise_for_decoding(speaker.train())
        assert not fast.training
        assert not fast.state_weight.requires_grad
        speaker.eval()
    assert found.log_probs.requires_grad == (not isinstance(speaker, Att2in))


def test_captions_in_bfloat16_are_nearly_the_same(toy):
    speaker, batch = toy.agents().speaker.eval(), toy.batch()
    with torch.no_grad():
        speaker.logit.weight *= 20
    captions = [
        generate(optimise_for_decoding(speaker, dtype), batch, Greedy(), make_generator()).tokens
        for dtype in (None, torch.bfloat16)
    ]
    assert optimise_for_decoding(speaker, torch.bfloat16).logit.weight.dtype == torch.bfloat16
    assert speaker.logit.weight.dtype == torch.float32
    assert (captions[0] == captions[1]).float().mean() > 0.8


def list_image_weights(speaker):
    """Return the weights that act on the image features."""
    if isinstance(speaker, Att2in):
        return [speaker.from_regions.weight]
    if isinstance(speaker, Transformer):
        return [layer.region_out.weight for layer in speaker.decoder]
    return [speaker.region.weight]


def add_null_images(world):
    """Return the world with a null image in place of every third image."""
    speaker, listener, batch = world
    speaker.add_null_image()
    with torch.no_grad():
        speaker.null.copy_(torch.randn(8, generator=make_generator()))
    batch.region_mask[::3] = False
    return speaker, listener, batch


def test_teacher_forcing_and_generation_of_the_null_image_equal_the_plain_ones(world):
    speaker, _, batch = add_null_images(world)
    speaker.train(isinstance(speaker, Att2in))
    plain_speaker = deepcopy(speaker)
    found, expected = (
        teacher_force(speaker, batch, make_generator()).log_probs,
        plain.plain_teacher_force(plain_speaker, batch, make_generator()).log_probs,
    )
    assert compare_values(found, expected, (speaker,), (plain_speaker,)) > MIN_WEIGHTS
    message = generate(speaker, batch, Multinomial(SAMPLES), make_generator())
    tokens, log_probs, _, _ = plain_unroll(plain_speaker, batch, Multinomial(SAMPLES), make_generator())
    assert torch.equal(message.tokens, tokens)
    assert compare_values(message.log_probs, log_probs, (speaker,), (plain_speaker,)) > MIN_WEIGHTS


@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("channel", [Greedy(), Multinomial(SAMPLES), Beam(3), Beam(4, samples=2)], ids=repr)
def test_guided_captions_equal_those_of_the_plain_unroll(world, channel, gamma):
    speaker, _, batch = add_null_images(world)
    with torch.no_grad():
        for weight in list_image_weights(speaker):
            weight *= 4
        speaker.logit.weight *= 12
    plain_speaker = deepcopy(speaker.eval())
    message = generate(GuidedDecoder(speaker, gamma), batch, channel, make_generator())
    with torch.no_grad():
        tokens, log_probs, _, _ = plain_unroll(plain_speaker, batch, channel, make_generator(), gamma)
    kept = tokens.view(len(batch), channel.width, -1)[:, : channel.samples].flatten(0, 1)
    assert torch.equal(message.tokens, kept)
    assert torch.equal(
        generate(optimise_for_decoding(GuidedDecoder(speaker, gamma)), batch, channel, make_generator()).tokens, kept
    )
    assert gamma < 1 or not torch.equal(kept, generate(speaker, batch, channel, make_generator()).tokens)
    if channel.requires_grad:
        torch.testing.assert_close(message.log_probs, log_probs)


def test_continuations_equal_those_of_the_plain_unroll(world):
    speaker, _, batch = world
    channel = PrefixRollouts(each=3, prefixes=5)
    found, expected = (
        generate(speaker, batch, channel, make_generator()),
        plain.plain_generate(speaker, batch, channel, make_generator()),
    )
    assert torch.equal(found.tokens, expected.tokens)
    assert found.samples == 15


def test_a_graph_may_be_differentiated_twice(world):
    speaker, listener, batch = world
    message = generate(speaker, batch, PartialSampling(StraightThrough(SAMPLES), 0.5), make_generator())
    loss = listener.encode_text(message).sum()
    weights = list(speaker.parameters())
    first = torch.autograd.grad(loss, weights, retain_graph=True)
    again = torch.autograd.grad(loss, weights)
    for left, right in zip(first, again, strict=True):
        torch.testing.assert_close(left, right)
