"""The one unroll: generation by a decoder through a channel, and teacher forcing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Generator, Tensor

from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.models.kernels.dispatch import fast_form, fast_random
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.models.steps import UnrollStep, gather_states, relaxed_tokens, token_likelihoods
from pipeline.protocols import Channel, RelaxingChannel
from pipeline.random import BatchRandom
from pipeline.runtime import devices
from pipeline.types import Batch, Message, caption_mask

Noted = tuple[Tensor, Tensor]  # rows (n,) of captions, and their hidden states (n, H) without a graph
DROPOUT = 1  # a random stream apart from that of the tokens
STILL_FULL = 0.75  # below this share of unfinished captions, finished captions are removed from the batch


def generate(
    speaker: Decoder, batch: Batch, channel: Channel, rng: Generator, encoded: Tensor | None = None
) -> Message:
    """Unroll `channel` over `batch`: B·samples captions of at most `max_words` tokens.

    `encoded` is the result of `speaker.encode_image`, if already computed. Tokens are chosen without a graph. Gradients
    are prepared afterwards for all time steps at once, except where the next input is a full distribution. After a
    caption's EOS, all tokens are a constant EOS without a gradient.
    """
    if torch.is_grad_enabled() and not speaker.requires_grad:
        with torch.no_grad():
            return generate(speaker, batch, channel, rng, encoded)
    device, width = batch.device, channel.width
    rows = torch.arange(len(batch) * width, device=device)  # captions still in the batch
    drop = _dropout(speaker, BatchRandom(batch, rng).apart(DROPOUT))
    decoder, words, logit = fast_form(speaker), SharedWeight(speaker.word.weight), SharedWeight(speaker.logit.weight)
    state = decoder.begin(batch, speaker.encode_image(batch) if encoded is None else encoded, drop, width)
    choose = channel.open(batch, speaker.vocabulary, rng)
    embedded = words.rows(torch.full_like(rows, speaker.vocabulary + 1))  # BOS
    ended = torch.zeros_like(rows, dtype=torch.bool)
    tokens = torch.zeros(len(rows), speaker.max_words, dtype=torch.int64, device=device)
    steps: list[UnrollStep] = []
    noted: list[Noted] = []
    for t in range(speaker.max_words):
        hidden, state = decoder.step(embedded, state)
        h = drop(hidden, rows, width)
        with torch.no_grad():
            logits = speaker.logits(h)
        symbol = choose(t, logits, rows)
        if symbol.parent is not None:  # beam search moved rows: their state and tokens move too
            state = decoder.select(state, symbol.parent, same_images=True)
            ended = ended[symbol.parent]
            tokens[rows] = tokens[rows[symbol.parent]]
        index = symbol.index.masked_fill(ended, 0)
        tokens[rows, t] = index
        step = UnrollStep(t, rows, ~ended, h, logits, symbol)
        if channel.requires_grad:
            steps.append(step)
            noted.append((rows, hidden.detach()))
        ended = index == 0
        # on a GPU the check would synchronise; on a CPU it saves steps
        left = _left(ended, width if symbol.parent is not None else 1) if devices.is_synchronous(device) else rows
        if not len(left) or t + 1 == speaker.max_words:
            break
        embedded = words.rows(index if symbol.next_input is None else symbol.next_input)
        if symbol.feeds_relaxed:
            mixed = words.mixture(step.distribution(cast(RelaxingChannel, channel), logit, speaker.logit.bias))
            embedded = step.goes_on_from(embedded, mixed)
        if len(left) < STILL_FULL * len(rows):
            rows, ended, embedded, state = rows[left], ended[left], embedded[left], decoder.select(state, left)
    tokens = tokens.view(len(batch), width, -1)[:, : channel.samples, : t + 1].flatten(0, 1)
    message = _message(tokens, channel.samples, noted)
    if channel.relaxes:
        return replace(
            message, relaxed=relaxed_tokens(steps, cast(RelaxingChannel, channel), logit, speaker.logit.bias, t + 1)
        )
    if not channel.requires_grad:
        return message
    likelihoods = token_likelihoods(steps, logit, speaker.logit.bias, tokens, channel.entropies)
    forced = sum(step.symbol.forced for step in steps)
    return replace(message, forced=forced, **vars(likelihoods))


def teacher_force(
    speaker: Decoder, batch: Batch, rng: Generator | None = None, encoded: Tensor | None = None
) -> Message:
    """Run teacher forcing for all steps at once: the result of `generate` through `Forced()`, but faster."""
    if torch.is_grad_enabled() and not speaker.requires_grad:
        with torch.no_grad():
            return teacher_force(speaker, batch, rng, encoded)
    tokens = batch.captions
    drop = _dropout(speaker, BatchRandom(batch, rng))
    hidden, places = fast_form(speaker).teacher_force(
        batch, speaker.encode_image(batch) if encoded is None else encoded, drop
    )
    h = drop(hidden, places, tokens.shape[1])
    with torch.no_grad():
        logits = speaker.logits(h)
    chosen = SharedWeight(speaker.logit.weight).log_prob(h, speaker.logit.bias, logits, tokens.flatten()[places])
    log_probs = chosen.new_zeros(tokens.numel()).index_copy(0, places, chosen).view(tokens.shape)
    message = _message(tokens, 1, [])
    states = partial(_states, hidden.detach(), places, tokens.shape)
    return replace(message, log_probs=log_probs * message.mask, states=states)


@torch.no_grad()
def forced_logits(speaker: Decoder, batch: Batch, captions: Message, positions: Tensor) -> Tensor:
    """Return logits (M, V+1) of `speaker` at `positions` (M,), n·T + t, of captions (N, T) of the batch's images.

    The speaker is teacher-forced, without dropout in evaluation mode. Positions after an EOS have no logits.
    """
    images, tokens = captions.images, captions.tokens
    of_captions = replace(  # each caption counts as one image
        batch,
        images=batch.images[images],
        pooled=batch.pooled[images],
        regions=batch.regions[images],
        region_mask=batch.region_mask[images],
        captions=tokens,
    )
    encoded = speaker.encode_image(batch)[images]
    hidden, places = fast_form(speaker).teacher_force(of_captions, encoded, _dropout(speaker, BatchRandom(batch, None)))
    row_at = torch.zeros(tokens.numel(), dtype=torch.int64, device=tokens.device)
    row_at[places] = torch.arange(len(places), device=tokens.device)
    return speaker.logits(hidden[row_at[positions]])


def _dropout(speaker: Decoder, numbers: BatchRandom) -> RolloutDropout:
    share = speaker.dropout if speaker.training else 0.0
    return RolloutDropout(share, fast_random(numbers) if share else numbers)


def _states(hidden: Tensor, places: Tensor, shape: torch.Size) -> Tensor:
    """Return a table (N, T, H) of hidden states (M, H) at their positions, 0 elsewhere."""
    table = hidden.new_zeros(shape.numel(), *hidden.shape[1:])
    return table.index_copy(0, places, hidden).view(*shape, *hidden.shape[1:])


def _left(ended: Tensor, together: int) -> Tensor:
    """Return the unfinished rows (M,) int64 of `ended` (N,); groups of `together` rows, such as beams, stay whole."""
    beams = ~ended.view(-1, together).all(1)
    return beams.repeat_interleave(together).nonzero().squeeze(1)


def _message(tokens: Tensor, samples: int, noted: Sequence[Noted]) -> Message:
    images = torch.arange(len(tokens), device=tokens.device) // samples
    states = partial(gather_states, noted, len(tokens)) if noted else None
    return Message(tokens, caption_mask(tokens), images, samples, states=states)
