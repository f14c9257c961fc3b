"""The compiled step of Att2in2 in single precision. tests/test_plain.py tests it in double precision."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from plain import plain_unroll

from pipeline.channels.straight_through import StraightThrough
from pipeline.models.kernels.dispatch import accelerate_decoder
from pipeline.models.kernels.recurrence import run_in_parallel
from pipeline.models.unroll import generate, teacher_force


@pytest.fixture
def speaker_and_batch(toy):
    agents, batch = toy.agents(dropout=0.3), toy.batch()
    return agents.speaker.train(), batch


def test_single_precision_is_the_plain_form_up_to_rounding(speaker_and_batch):
    speaker, batch = speaker_and_batch
    assert accelerate_decoder(speaker) is not speaker
    twin, channel = deepcopy(speaker), StraightThrough(3, "soft")
    message = generate(speaker, batch, channel, torch.Generator().manual_seed(1))
    tokens, _, _, log_probs = plain_unroll(twin, batch, channel, torch.Generator().manual_seed(1))
    assert torch.equal(message.tokens, tokens)
    weight = torch.randn(log_probs.shape)
    (message.distributions(speaker.vocabulary) * weight).sum().backward()
    (log_probs * weight).sum().backward()
    for (name, parameter), plain in zip(speaker.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(
            parameter.grad, plain.grad, rtol=1e-3, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_gradients_do_not_depend_on_the_number_of_threads(speaker_and_batch):
    speaker, batch = speaker_and_batch

    def compute_gradients(threads):
        torch.set_num_threads(threads)
        try:
            message = generate(speaker, batch, StraightThrough(3), torch.Generator().manual_seed(1))
            loss = message.distributions(speaker.vocabulary).square().sum()
            return torch.autograd.grad(loss, list(speaker.parameters()))
        finally:
            torch.set_num_threads(1)

    for one, several in zip(compute_gradients(1), compute_gradients(3), strict=True):
        torch.testing.assert_close(one, several)


def test_masked_regions_have_no_weight(speaker_and_batch):
    speaker, batch = speaker_and_batch
    speaker.eval()
    batch.region_mask[:, 1:] = False
    expected = generate(speaker, batch, StraightThrough(1), torch.Generator().manual_seed(1))
    batch.regions[:, 1:] = 1e4
    message = generate(speaker, batch, StraightThrough(1), torch.Generator().manual_seed(1))
    torch.testing.assert_close(expected.distributions(speaker.vocabulary), message.distributions(speaker.vocabulary))


def test_attention_equals_the_plain_form_also_where_tanh_is_flat(speaker_and_batch):
    speaker, batch = speaker_and_batch
    speaker.eval()
    with torch.no_grad():
        speaker.key.weight.mul_(1000)  # keys up to 600, beyond the kernel's bound of 43
        speaker.query.weight.mul_(10)
    message = generate(speaker, batch, StraightThrough(3), torch.Generator().manual_seed(1))
    tokens, _, _, log_probs = plain_unroll(speaker, batch, StraightThrough(3), torch.Generator().manual_seed(1))
    assert torch.equal(message.tokens, tokens)
    found, expected = (
        torch.autograd.grad(each.square().sum(), speaker.weight.weight, retain_graph=True)[0]
        for each in (message.distributions(speaker.vocabulary), log_probs)
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("half", [0, 1])
def test_nan_in_one_half_of_the_maxout_is_kept(speaker_and_batch, half):
    speaker, batch = speaker_and_batch
    speaker.eval()
    with torch.no_grad():
        speaker.from_regions.bias[half * speaker.hidden] = torch.nan
    log_probs = teacher_force(speaker, batch).log_probs
    assert log_probs[:, 0].isnan().all()


def test_parts_divide_no_image_and_no_captions_are_one_empty_part(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert run_in_parallel(torch.empty(0, dtype=torch.long), lambda part: part) == [(0, 0)]
    assert run_in_parallel(torch.tensor([4, 4, 5]), lambda part: part) == [(0, 2), (2, 3)]
