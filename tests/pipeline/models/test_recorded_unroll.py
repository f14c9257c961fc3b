"""The unroll that is differentiated by one autograd operation. tests/test_plain.py compares it with the plain form."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from pipeline.channels.hard import Multinomial
from pipeline.channels.partial import PartialSampling
from pipeline.channels.straight_through import StraightThrough
from pipeline.models import unroll
from pipeline.models.recorded_unroll import RecordedUnroll
from pipeline.models.stepwise_unroll import StepwiseUnroll
from pipeline.models.unroll import generate, open_unroll

PSST = PartialSampling(StraightThrough(3), 0.5)


def make_generator():
    return torch.Generator().manual_seed(1)


@pytest.fixture
def speaker_and_batch(toy):
    agents, batch = toy.agents(dropout=0.3), toy.batch()
    with torch.no_grad():
        agents.speaker.logit.bias[0] += 2  # captions of different lengths leave the batch
    return agents.speaker.train(), batch


@pytest.fixture
def unrolls(monkeypatch):
    """Return the list of the unrolls that generate captions."""
    opened = []

    def record_unroll(*arguments):
        opened.append(open_unroll(*arguments))
        return opened[-1]

    monkeypatch.setattr(unroll, "open_unroll", record_unroll)
    return opened


@pytest.mark.parametrize("channel", [Multinomial(3), StraightThrough(3), PSST])
def test_an_unroll_is_recorded_only_where_captions_need_a_gradient(speaker_and_batch, channel, unrolls):
    speaker, batch = speaker_and_batch
    generate(speaker, batch, channel, make_generator())
    with torch.no_grad():
        generate(speaker, batch, channel, make_generator())
    assert [type(each) for each in unrolls] == [RecordedUnroll, StepwiseUnroll]


@pytest.mark.parametrize("channel", [Multinomial(3), PSST])
def test_a_second_backward_pass_gives_the_same_gradients(speaker_and_batch, channel):
    speaker, batch = speaker_and_batch
    message = generate(speaker, batch, channel, make_generator())
    values = message.log_probs if channel is not PSST else message.distributions(speaker.vocabulary)
    loss, weights = (values * torch.randn(values.shape)).sum(), list(speaker.parameters())
    first, second = (torch.autograd.grad(loss, weights, retain_graph=True) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_a_record_is_freed_with_its_message(speaker_and_batch, unrolls):
    """A reference cycle through the graph would keep the record of every training step."""
    speaker, batch = speaker_and_batch
    message = generate(speaker, batch, PSST, make_generator())
    record = weakref.ref(unrolls.pop())
    assert record() is not None
    gc.disable()
    try:
        del message
        assert record() is None
    finally:
        gc.enable()
