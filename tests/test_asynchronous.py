"""Branches for a GPU, which never wait for the device, equal the branches for a CPU, which take fewer steps and rows.

Both run on the CPU here: captions, their text embeddings, and every gradient of whole methods.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from every_method import METHODS
from test_methods import made
from test_plain import LEAST, SAMPLES, by_likelihood, rng, same, through_words, unseen, world
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.channels.hard import Beam, Greedy, Multinomial
from pipeline.channels.teacher_forcing import PrefixRollouts
from pipeline.composition.joint import Objective
from pipeline.composition.kl_penalty import copy_frozen
from pipeline.composition.method import Method
from pipeline.composition.relax_controls import with_relax
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
def asynchronous() -> Iterator[None]:
    """Treat the CPU as a device that would have to be waited for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "is_synchronous", lambda device: False)
        yield


def as_long(x: torch.Tensor, steps: int) -> torch.Tensor:
    """Return `x` (N, T, …) padded with zeros to (N, steps, …)."""
    return torch.cat([x, x.new_zeros(len(x), steps - x.shape[1], *x.shape[2:])], 1)


def check_captions(found: Message, expected: Message) -> None:
    """Compare captions; on a GPU they have positions for the largest number of words."""
    steps = found.tokens.shape[1]
    assert torch.equal(found.tokens, as_long(expected.tokens, steps))
    assert torch.equal(found.mask, as_long(expected.mask, steps))
    assert torch.equal(found.images, expected.images)
    assert (found.samples, found.forced) == (expected.samples, expected.forced)


@pytest.mark.parametrize("name", through_words())
def test_text_embeddings_of_captions_are_the_same(world, name):
    speaker, listener, batch = world
    message = generate(speaker, batch, through_words()[name], rng())
    text_vectors, rows = listener.encode_text(message), message.distributions(speaker.vocabulary)
    with asynchronous():
        other = generate(speaker, batch, through_words()[name], rng())
        check_captions(other, message)
        assert other.tokens.shape[1] == speaker.max_words
        silence = F.one_hot(other.tokens[:, rows.shape[1] :], speaker.vocabulary + 1)
        other_rows = other.distributions(speaker.vocabulary)
        assert same(other_rows, torch.cat([rows, silence], 1), (speaker,), (speaker,)) >= LEAST
        assert same(listener.encode_text(other), text_vectors, (speaker, listener), (speaker, listener)) >= LEAST + 5


@pytest.mark.parametrize("name", by_likelihood())
def test_log_probabilities_entropies_states_and_logits_are_the_same(world, name):
    speaker, _, batch = world
    message = generate(speaker, batch, by_likelihood()[name], rng())
    with asynchronous():
        other = generate(speaker, batch, by_likelihood()[name], rng())
        check_captions(other, message)
        steps = other.tokens.shape[1]
        assert same(other.log_probs, as_long(message.log_probs, steps), (speaker,), (speaker,)) >= LEAST
        if message.entropies is not None:
            assert same(other.entropies, as_long(message.entropies, steps), (speaker,), (speaker,)) >= LEAST
        torch.testing.assert_close(other.states()[other.mask], message.states()[message.mask])
        every = other.logits()
    own = message.logits()
    place = own.positions // message.tokens.shape[1] * steps + own.positions % message.tokens.shape[1]
    assert sorted(every.positions[every.valid].tolist()) == sorted(place.tolist())
    left, right = (
        x[at.argsort()]
        for x, at in ((every.probabilities[every.valid], every.positions[every.valid]), (own.probabilities, place))
    )
    assert same(left, right, (speaker,), (speaker,)) >= LEAST


def test_the_divergence_from_another_speaker_is_the_same(world):
    """Positions behind a caption's end have none."""
    speaker, _, batch = world
    reference = copy_frozen(speaker)
    with torch.no_grad():
        reference.logit.bias += torch.linspace(-1, 1, len(reference.logit.bias))
    score, channel = ReferenceDivergence(reference), Multinomial(SAMPLES)
    expected = score.per_token(generate(speaker, batch, channel, rng()), batch)
    with asynchronous():
        found = score.per_token(generate(speaker, batch, channel, rng()), batch)
    assert expected.max() > 0.01
    assert same(found, as_long(expected, found.shape[1]), (speaker,), (speaker,)) >= LEAST


@pytest.mark.parametrize("with_null_image", [False, True])
def test_teacher_forcing_is_the_same(world, with_null_image):
    speaker, _, batch = unseen(world) if with_null_image else world
    speaker.train(not isinstance(speaker, Transformer))  # dropout depends on the number of steps
    message = teacher_force(speaker, batch, rng())
    with asynchronous():
        other = teacher_force(speaker, batch, rng())
        assert torch.equal(other.mask, message.mask)
        assert not message.mask.all()
        assert same(other.log_probs, message.log_probs, (speaker,), (speaker,)) >= LEAST
        torch.testing.assert_close(other.states()[other.mask], message.states()[message.mask])


@pytest.mark.parametrize(
    "channel",
    [Greedy(), Beam(3), Beam(4, samples=2), Multinomial(SAMPLES, requires_grad=False), PrefixRollouts(3, 5)],
    ids=repr,
)
@pytest.mark.parametrize("guided", [False, True])
def test_captions_without_a_gradient_are_the_same(world, channel, guided):
    speaker, _, batch = unseen(world)
    speaker = GuidedDecoder(speaker, 2.0) if guided else speaker
    message = generate(speaker, batch, channel, rng())
    with asynchronous():
        check_captions(generate(speaker, batch, channel, rng()), message)


def test_continuations_give_the_same_credit(toy):
    """A caption has them from each place: that a GPU may have more places would change what is drawn for each."""
    speaker, score, channel = toy.agents(dropout=0.4).speaker.train(), CiderScore(toy.cider), Multinomial(SAMPLES)

    def worth() -> tuple[torch.Tensor, Message]:
        rollouts = StepRollouts(speaker, toy.batch(), seed=1)
        message = rollouts.of(channel)
        return MonteCarloCredit(2)(score(message, toy.batch()), score, channel, rollouts), message

    expected, message = worth()
    assert message.tokens.shape[1] == speaker.max_words
    with asynchronous():
        found, other = worth()
    assert torch.equal(other.tokens, message.tokens)
    torch.testing.assert_close(found[message.mask], expected[message.mask])


@pytest.mark.parametrize("recurrent", ["att2in", pytest.param("lstm", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*METHODS, "relaxed"])
def test_a_methods_losses_and_gradients_are_the_same(toy, name, recurrent):
    def method() -> Method:
        agents = toy.agents(dropout=0.3, decoder=recurrent)
        torch.manual_seed(1)  # critics are drawn
        if name != "relaxed":
            return made(name, agents)
        method = with_relax(METHODS["luo"](agents, Objective(samples=3), lam=0.3))
        for parameter in method.agents["critic"].parameters():  # a control begins as 0, and would count for nothing
            torch.nn.init.normal_(parameter)
        return method

    expected = step(method(), toy)
    with asynchronous():
        found = step(method(), toy)
    assert found.keys() == expected.keys()
    assert len(expected) > 15
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, atol=1e-6, rtol=1e-4, msg=lambda text, k=key: f"{k}: {text}")


class NoReads(TorchDispatchMode):
    """Fails where a GPU would be waited for: a number is read, a shape depends on numbers, or the host's are copied."""

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
    """A CUDA graph needs every action of a step to be known before its numbers are."""
    method, batch = made(name, toy.agents(dropout=0.3, decoder=recurrent)), toy.batch()
    with asynchronous():
        method.step(batch, seed=2)  # makes everything that is made once
        for read_by in ("tolist", "numpy"):
            monkeypatch.setattr(torch.Tensor, read_by, lambda x: pytest.fail("a tensor is read"))
        with NoReads():
            losses, _ = method.step(batch, seed=2)
            sum(losses.values()).backward()


@pytest.mark.parametrize("wait", [lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: x[x > 0], torch.tensor])
def test_synchronisation_would_be_detected(wait):
    x = torch.arange(3)
    with NoReads(), pytest.raises(AssertionError, match="waits for the device"):
        wait([1, 2] if wait is torch.tensor else x)


def step(method: Method, toy) -> dict[str, torch.Tensor]:
    """Return the losses, the report, and the gradients of all agents."""
    losses, report = method.step(toy.batch(), seed=2)
    sum(losses.values()).backward()
    modules = method.modules().items()
    gradients = {f"{m} {n}": p.grad for m, module in modules for n, p in module.named_parameters()}
    return {f"loss {n}": loss.detach() for n, loss in losses.items()} | report | gradients
