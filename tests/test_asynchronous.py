"""Branches for a GPU, which never wait for the device, equal the branches for a CPU, which take fewer steps and rows.

Both run on the CPU here. The tests compare captions, their text embeddings, and every gradient of whole methods.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from every_method import METHODS
from test_methods import build_method
from test_plain import (
    MIN_WEIGHTS,
    SAMPLES,
    add_null_images,
    compare_values,
    make_generator,
    make_pathwise_channels,
    make_score_function_channels,
    world,
)
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.teacher_forcing import PrefixRollouts
from pipeline.composition.joint import Objective
from pipeline.composition.kl_penalty import copy_frozen
from pipeline.composition.method import Method
from pipeline.composition.relax_controls import add_relax
from pipeline.estimators.credit import MonteCarloCredit
from pipeline.estimators.rollouts import StepRollouts
from pipeline.models.guided import GuidedDecoder
from pipeline.models.transformer import Transformer
from pipeline.models.unroll import generate, teacher_force
from pipeline.runtime import devices
from pipeline.scores.naturalness import CiderScore
from pipeline.scores.reference_divergence import ReferenceDivergence
from pipeline.types import Message

__all__ = ["world"]


@contextmanager
def simulate_asynchrony() -> Iterator[None]:
    """Treat the CPU as a device with asynchronous kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "is_synchronous", lambda device: False)
        yield


def pad_steps(x: torch.Tensor, steps: int) -> torch.Tensor:
    """Return `x` (N, T, …) padded with zeros to (N, steps, …)."""
    return torch.cat([x, x.new_zeros(len(x), steps - x.shape[1], *x.shape[2:])], 1)


def check_captions(found: Message, expected: Message) -> None:
    """Compare captions; on a GPU, captions have positions for the largest number of words."""
    steps = found.tokens.shape[1]
    assert torch.equal(found.tokens, pad_steps(expected.tokens, steps))
    assert torch.equal(found.mask, pad_steps(expected.mask, steps))
    assert torch.equal(found.images, expected.images)
    assert (found.samples, found.forced) == (expected.samples, expected.forced)


@pytest.mark.parametrize("name", make_pathwise_channels())
def test_text_embeddings_of_captions_are_the_same(world, name):
    speaker, listener, batch = world
    message = generate(speaker, batch, make_pathwise_channels()[name], make_generator())
    text_vectors, rows = listener.encode_text(message), message.distributions(speaker.vocabulary)
    with simulate_asynchrony():
        other = generate(speaker, batch, make_pathwise_channels()[name], make_generator())
        check_captions(other, message)
        assert other.tokens.shape[1] == speaker.max_words
        padding = F.one_hot(other.tokens[:, rows.shape[1] :], speaker.vocabulary + 1)
        other_rows = other.distributions(speaker.vocabulary)
        assert compare_values(other_rows, torch.cat([rows, padding], 1), (speaker,), (speaker,)) >= MIN_WEIGHTS
        assert (
            compare_values(listener.encode_text(other), text_vectors, (speaker, listener), (speaker, listener))
            >= MIN_WEIGHTS + 5
        )


@pytest.mark.parametrize("name", make_score_function_channels())
def test_log_probabilities_entropies_states_and_logits_are_the_same(world, name):
    speaker, _, batch = world
    message = generate(speaker, batch, make_score_function_channels()[name], make_generator())
    with simulate_asynchrony():
        other = generate(speaker, batch, make_score_function_channels()[name], make_generator())
        check_captions(other, message)
        steps = other.tokens.shape[1]
        assert (
            compare_values(other.log_probs, pad_steps(message.log_probs, steps), (speaker,), (speaker,)) >= MIN_WEIGHTS
        )
        if message.entropies is not None:
            assert (
                compare_values(other.entropies, pad_steps(message.entropies, steps), (speaker,), (speaker,))
                >= MIN_WEIGHTS
            )
        torch.testing.assert_close(other.states()[other.mask], message.states()[message.mask])
        found = other.logits()
    expected = message.logits()
    rows, columns = expected.positions // message.tokens.shape[1], expected.positions % message.tokens.shape[1]
    positions, other_positions = rows * steps + columns, found.positions[found.valid]
    assert sorted(other_positions.tolist()) == sorted(positions.tolist())
    left = found.probabilities[found.valid][other_positions.argsort()]
    right = expected.probabilities[positions.argsort()]
    assert compare_values(left, right, (speaker,), (speaker,)) >= MIN_WEIGHTS


def test_the_divergence_from_another_speaker_is_the_same(world):
    """The divergence is 0 at positions behind a caption's end."""
    speaker, _, batch = world
    reference = copy_frozen(speaker)
    with torch.no_grad():
        reference.logit.bias += torch.linspace(-1, 1, len(reference.logit.bias))
    score, channel = ReferenceDivergence(reference), Multinomial(SAMPLES)
    expected = score.per_token(generate(speaker, batch, channel, make_generator()), batch)
    with simulate_asynchrony():
        found = score.per_token(generate(speaker, batch, channel, make_generator()), batch)
    assert expected.max() > 0.01
    assert compare_values(found, pad_steps(expected, found.shape[1]), (speaker,), (speaker,)) >= MIN_WEIGHTS


@pytest.mark.parametrize("with_null_image", [False, True])
def test_teacher_forcing_is_the_same(world, with_null_image):
    speaker, _, batch = add_null_images(world) if with_null_image else world
    speaker.train(not isinstance(speaker, Transformer))  # dropout depends on the number of steps
    message = teacher_force(speaker, batch, make_generator())
    with simulate_asynchrony():
        other = teacher_force(speaker, batch, make_generator())
        assert torch.equal(other.mask, message.mask)
        assert not message.mask.all()
        assert compare_values(other.log_probs, message.log_probs, (speaker,), (speaker,)) >= MIN_WEIGHTS
        torch.testing.assert_close(other.states()[other.mask], message.states()[message.mask])


@pytest.mark.parametrize(
    "channel",
    [Greedy(), Beam(3), Beam(4, samples=2), Multinomial(SAMPLES, requires_grad=False), PrefixRollouts(3, 5)],
    ids=repr,
)
@pytest.mark.parametrize("guided", [False, True])
def test_captions_without_a_gradient_are_the_same(world, channel, guided):
    speaker, _, batch = add_null_images(world)
    speaker = GuidedDecoder(speaker, 2.0) if guided else speaker
    message = generate(speaker, batch, channel, make_generator())
    with simulate_asynchrony():
        check_captions(generate(speaker, batch, channel, make_generator()), message)


def test_continuations_give_the_same_credit(toy):
    """Rollouts start at each position, so captions with more positions on a GPU would draw other rollouts."""
    speaker, score, channel = toy.agents(dropout=0.4).speaker.train(), CiderScore(toy.cider), Multinomial(SAMPLES)

    def compute_credit() -> tuple[torch.Tensor, Message]:
        rollouts = StepRollouts(speaker, toy.batch(), seed=1)
        message = rollouts.get_message(channel)
        return MonteCarloCredit(2)(score(message, toy.batch()), score, channel, rollouts), message

    expected, message = compute_credit()
    assert message.tokens.shape[1] == speaker.max_words
    with simulate_asynchrony():
        found, other = compute_credit()
    assert torch.equal(other.tokens, message.tokens)
    torch.testing.assert_close(found[message.mask], expected[message.mask])


@pytest.mark.parametrize("recurrent", ["att2in", pytest.param("lstm", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*METHODS, "relaxed"])
def test_a_methods_losses_and_gradients_are_the_same(toy, name, recurrent):
    def make_method() -> Method:
        agents = toy.agents(dropout=0.3, decoder=recurrent)
        torch.manual_seed(1)  # critics are initialised at random
        if name != "relaxed":
            return build_method(name, agents)
        method = add_relax(METHODS["luo"](agents, Objective(samples=3), lam=0.3))
        for parameter in method.agents["critic"].parameters():  # a control starts at 0 and would have no effect
            torch.nn.init.normal_(parameter)
        return method

    expected = compute_step(make_method(), toy)
    with simulate_asynchrony():
        found = compute_step(make_method(), toy)
    assert found.keys() == expected.keys()
    assert len(expected) > 15
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, atol=1e-6, rtol=1e-4, msg=lambda text, k=key: f"{k}: {text}")


class SynchronisationGuard(TorchDispatchMode):
    """A dispatch mode that fails where a GPU waits: for reads, shapes that depend on values, and host data."""

    waits = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "_unique2",
        "unique_dim",
        "bincount",
        "equal",
        "lift_fresh",
    )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            isinstance(x, torch.Tensor) and x.dtype == torch.bool
            for part in args
            if isinstance(part, list)
            for x in part
        )
        assert name not in self.waits, f"{name} waits for the device"
        assert not by_mask, f"{name} by a mask waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("recurrent", ["att2in", pytest.param("lstm", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", METHODS)
def test_a_step_never_waits_for_the_device(toy, name, recurrent, monkeypatch):
    """A CUDA graph fixes the operations of a step before its values are computed."""
    method, batch = build_method(name, toy.agents(dropout=0.3, decoder=recurrent)), toy.batch()
    with simulate_asynchrony():
        method.step(batch, seed=2)  # the first step creates objects that later steps reuse
        for read_by in ("tolist", "numpy"):
            monkeypatch.setattr(torch.Tensor, read_by, lambda x: pytest.fail("expected no read of a tensor"))
        with SynchronisationGuard():
            losses, _ = method.step(batch, seed=2)
            sum(losses.values()).backward()


@pytest.mark.parametrize("wait", [lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0], torch.tensor])
def test_synchronisation_would_be_detected(wait):
    x = torch.arange(3)
    with SynchronisationGuard(), pytest.raises(AssertionError, match="waits for the device"):
        wait([1, 2] if wait is torch.tensor else x)


def compute_step(method: Method, toy) -> dict[str, torch.Tensor]:
    """Return the losses, the report, and the gradients of all agents."""
    losses, report = method.step(toy.batch(), seed=2)
    sum(losses.values()).backward()
    modules = method.modules().items()
    gradients = {f"{m} {n}": p.grad for m, module in modules for n, p in module.named_parameters()}
    return {f"loss {n}": loss.detach() for n, loss in losses.items()} | report | gradients
