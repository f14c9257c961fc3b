"""Unroll of a decoder: generation through a channel, and teacher forcing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Generator, Tensor

from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.models.kernels.dispatch import accelerate_decoder, accelerate_random, has_fast_form
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.models.steps import UnrollStep, compute_relaxed_tokens, compute_token_likelihoods, gather_states
from pipeline.models.stepwise_unroll import StepwiseUnroll, Unroll
from pipeline.protocols import Channel, RelaxingChannel
from pipeline.random import BatchRandom
from pipeline.runtime import devices
from pipeline.types import Batch, Message, make_caption_mask

RecordedStates = tuple[Tensor, Tensor]  # rows (n,) of captions, and their hidden states (n, H) without a graph
DROPOUT = 1  # random stream of dropout, independent of the tokens' stream
MIN_UNFINISHED = 0.75  # share of unfinished captions below which finished captions leave the batch


def generate(
    speaker: Decoder, batch: Batch, channel: Channel, rng: Generator, encoded: Tensor | None = None
) -> Message:
    """Generate B·samples captions of at most `max_words` tokens through `channel`.

    `encoded` is the result of `speaker.encode_image`, if already computed. Tokens are chosen from logits without a
    graph. The output layer's graph is built afterwards for all time steps at once, except for full distributions, which
    are computed step by step. After a caption's EOS, all tokens are EOS without a gradient.
    """
    if torch.is_grad_enabled() and not speaker.requires_grad:
        with torch.no_grad():
            return generate(speaker, batch, channel, rng, encoded)
    device, width = batch.device, channel.width
    rows = torch.arange(len(batch) * width, device=device)  # captions still in the batch
    drop = _make_dropout(speaker, BatchRandom(batch, rng).derive_stream(DROPOUT))
    encoded = speaker.encode_image(batch) if encoded is None else encoded
    unroll = open_unroll(speaker, batch, encoded, drop, width, channel.requires_grad)
    choose = channel.open(batch, speaker.vocabulary, rng)
    unroll.set_inputs(torch.full_like(rows, speaker.vocabulary + 1))  # BOS
    ended = torch.zeros_like(rows, dtype=torch.bool)
    tokens = torch.zeros(len(rows), speaker.max_words, dtype=torch.int64, device=device)
    steps: list[UnrollStep] = []
    recorded_states: list[RecordedStates] = []
    for t in range(speaker.max_words):
        hidden, h = unroll.step(rows)
        logits = unroll.compute_logits(h)
        choice = choose(t, logits, rows)
        if choice.parent is not None:  # beam search reorders the rows of states and tokens
            unroll.select(choice.parent, same_images=True)
            ended = ended[choice.parent]
            tokens[rows] = tokens[rows[choice.parent]]
        index = choice.index.masked_fill(ended, 0)
        tokens[rows, t] = index
        step = UnrollStep(t, rows, ~ended, h, logits, choice)
        if channel.requires_grad:
            steps.append(step)
            recorded_states.append((rows, hidden.detach()))
        ended = index == 0
        remaining = rows
        if devices.is_synchronous(device):  # on a GPU, a selection of rows would synchronise
            remaining = _find_unfinished_rows(ended, width if choice.parent is not None else 1)
        if not len(remaining) or t + 1 == speaker.max_words:
            break
        next_tokens = index if choice.next_input is None else choice.next_input
        if choice.feeds_relaxed:
            unroll.set_inputs(next_tokens, step, cast(RelaxingChannel, channel))
        else:
            unroll.set_inputs(next_tokens)
        if len(remaining) < MIN_UNFINISHED * len(rows):
            rows, ended = rows[remaining], ended[remaining]
            unroll.select(remaining)
    tokens = tokens.view(len(batch), width, -1)[:, : channel.samples, : t + 1].flatten(0, 1)
    message = _make_message(tokens, channel.samples, recorded_states)
    if channel.requires_grad:
        unroll.connect(steps)
    if channel.relaxes:
        relaxed = compute_relaxed_tokens(steps, cast(RelaxingChannel, channel), unroll.logit, speaker.logit.bias, t + 1)
        return replace(message, relaxed=relaxed)
    if not channel.requires_grad:
        return message
    likelihoods = compute_token_likelihoods(steps, unroll.logit, speaker.logit.bias, tokens, channel.entropies)
    forced = sum(step.choice.forced for step in steps)
    return replace(message, forced=forced, **vars(likelihoods))


def open_unroll(
    speaker: Decoder, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int, requires_grad: bool
) -> Unroll:
    """Begin an unroll of `width` captions per image.

    The unroll is a `RecordedUnroll` where the captions need a gradient and `speaker` has a fast form.
    """
    if not (requires_grad and torch.is_grad_enabled() and has_fast_form(speaker)):
        return StepwiseUnroll(speaker, accelerate_decoder(speaker), batch, encoded, drop, width)
    from pipeline.models.recorded_unroll import RecordedUnroll  # imported here: importing numba takes 0.3 s

    return RecordedUnroll(speaker, batch, encoded, drop, width)


def teacher_force(
    speaker: Decoder, batch: Batch, rng: Generator | None = None, encoded: Tensor | None = None
) -> Message:
    """Return the batch's captions with their log-probabilities; one product gives the logits of all time steps.

    This is faster than `generate` through `TeacherForcing()`.

    Without dropout, both give the same tokens and log-probabilities, apart from padding after EOS. With dropout, the
    random numbers differ.
    """
    if torch.is_grad_enabled() and not speaker.requires_grad:
        with torch.no_grad():
            return teacher_force(speaker, batch, rng, encoded)
    tokens = batch.captions
    drop = _make_dropout(speaker, BatchRandom(batch, rng))
    hidden, positions = accelerate_decoder(speaker).teacher_force(
        batch, speaker.encode_image(batch) if encoded is None else encoded, drop
    )
    h = drop(hidden, positions, tokens.shape[1])
    with torch.no_grad():
        logits = speaker.logits(h)
    token_log_probs = SharedWeight(speaker.logit.weight).log_prob(
        h, speaker.logit.bias, logits, tokens.flatten()[positions]
    )
    log_probs = token_log_probs.new_zeros(tokens.numel()).index_copy(0, positions, token_log_probs).view(tokens.shape)
    message = _make_message(tokens, 1, [])
    states = partial(_scatter_states, hidden.detach(), positions, tokens.shape)
    return replace(message, log_probs=log_probs * message.mask, states=states)


@torch.no_grad()
def compute_forced_logits(speaker: Decoder, batch: Batch, captions: Message, positions: Tensor) -> Tensor:
    """Return the logits (M, V+1) of a teacher-forced `speaker` at `positions` (M,) of captions (N, T).

    A position is n·T + t and must not be after an EOS. The speaker must be in evaluation mode, without dropout.
    """
    images, tokens = captions.images, captions.tokens
    caption_batch = batch.select_images(images, tokens)  # each caption counts as one image
    encoded = speaker.encode_image(batch)[images]
    hidden, state_positions = accelerate_decoder(speaker).teacher_force(
        caption_batch, encoded, _make_dropout(speaker, BatchRandom(batch, None))
    )
    state_rows = torch.zeros(tokens.numel(), dtype=torch.int64, device=tokens.device)
    state_rows[state_positions] = torch.arange(len(state_positions), device=tokens.device)
    return speaker.logits(hidden[state_rows[positions]])


def _make_dropout(speaker: Decoder, batch_random: BatchRandom) -> RolloutDropout:
    probability = speaker.dropout if speaker.training else 0.0
    return RolloutDropout(probability, accelerate_random(batch_random) if probability else batch_random)


def _scatter_states(hidden: Tensor, positions: Tensor, shape: torch.Size) -> Tensor:
    """Return a table (N, T, H) of hidden states (M, H) at their positions (M,), 0 elsewhere."""
    table = hidden.new_zeros(shape.numel(), *hidden.shape[1:])
    return table.index_copy(0, positions, hidden).view(*shape, *hidden.shape[1:])


def _find_unfinished_rows(ended: Tensor, group: int) -> Tensor:
    """Return the unfinished rows (M,) int64 of `ended` (N,); groups of `group` rows, such as beams, stay whole."""
    if group > 1:
        ended = ended.view(-1, group).all(1).repeat_interleave(group)
    return (~ended).nonzero().squeeze(1)


def _make_message(tokens: Tensor, samples: int, recorded_states: Sequence[RecordedStates]) -> Message:
    images = torch.arange(len(tokens), device=tokens.device) // samples
    states = partial(gather_states, recorded_states, len(tokens)) if recorded_states else None
    return Message(tokens, make_caption_mask(tokens), images, samples, states=states)
