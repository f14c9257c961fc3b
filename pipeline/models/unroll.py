"""The one unroll: a decoder speaks through a channel, or reads what it is forced to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from torch import Generator, Tensor

from pipeline.models.decoder import Decoder, Dropout
from pipeline.models.kernels.fitting import fitting
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.models.steps import Step, likelihoods, passed, remembered
from pipeline.numbers import Numbers
from pipeline.protocols import Channel, RelaxingChannel
from pipeline.runtime import devices
from pipeline.types import Batch, Message, caption_mask

Noted = tuple[Tensor, Tensor]  # rows (n,) of captions, and their hidden states (n, H) without a graph
DROPOUT = 1  # its numbers are other than the words'
STILL_FULL = 0.75  # fewer captions than this share go on: those that ended are no longer carried along


def speak(speaker: Decoder, batch: Batch, channel: Channel, rng: Generator, seen: Tensor | None = None) -> Message:
    """Unroll `channel` over `batch`: B·samples captions of at most `max_words` words.

    `seen` is what `speaker.see` gave, if that has been done. Words are chosen without a graph. What a gradient needs is
    made afterwards, of all time steps at once, except where the speaker goes on from a full distribution. After the
    word that ends a caption, what the listener hears is a constant EOS, without a gradient.
    """
    if torch.is_grad_enabled() and not speaker.learns:
        with torch.no_grad():
            return speak(speaker, batch, channel, rng, seen)
    device, width = batch.device, channel.width
    rows = torch.arange(len(batch) * width, device=device)  # the captions that are carried along
    drop = _dropout(speaker, Numbers(batch, rng).apart(DROPOUT))
    decoder, words, logit = fitting(speaker), SharedWeight(speaker.word.weight), SharedWeight(speaker.logit.weight)
    state = decoder.begin(batch, speaker.see(batch) if seen is None else seen, drop, width)
    choose = channel.open(batch, speaker.vocabulary, rng)
    embedded = words.rows(torch.full_like(rows, speaker.vocabulary + 1))  # BOS
    ended = torch.zeros_like(rows, dtype=torch.bool)
    tokens = torch.zeros(len(rows), speaker.max_words, dtype=torch.int64, device=device)
    steps: list[Step] = []
    noted: list[Noted] = []
    for t in range(speaker.max_words):
        hidden, state = decoder.step(embedded, state)
        h = drop(hidden, rows, width)
        with torch.no_grad():
            logits = speaker.logits(h)
        symbol = choose(t, logits, rows)
        if symbol.parent is not None:  # rows moved: everything that belongs to them moves along
            state = decoder.select(state, symbol.parent, same_images=True)
            ended = ended[symbol.parent]
            tokens[rows] = tokens[rows[symbol.parent]]
        index = symbol.index.masked_fill(ended, 0)
        tokens[rows, t] = index
        step = Step(t, rows, ~ended, h, logits, symbol)
        if channel.learns:
            steps.append(step)
            noted.append((rows, hidden.detach()))
        ended = index == 0
        # asking a GPU would make it wait; a CPU saves the steps
        left = _left(ended, width if symbol.parent is not None else 1) if devices.synchronous(device) else rows
        if not len(left) or t + 1 == speaker.max_words:
            break
        embedded = words.rows(index if symbol.fed is None else symbol.fed)
        if symbol.feeds_full:
            mixed = words.mixture(step.distribution(cast(RelaxingChannel, channel), logit, speaker.logit.bias))
            embedded = step.goes_on_from(embedded, mixed)
        if len(left) < STILL_FULL * len(rows):
            rows, ended, embedded, state = rows[left], ended[left], embedded[left], decoder.select(state, left)
    tokens = tokens.view(len(batch), width, -1)[:, : channel.samples, : t + 1].flatten(0, 1)
    message = _message(tokens, channel.samples, noted)
    if channel.relaxes:
        return replace(message, said=passed(steps, cast(RelaxingChannel, channel), logit, speaker.logit.bias, t + 1))
    if not channel.learns:
        return message
    found = likelihoods(steps, logit, speaker.logit.bias, tokens, channel.entropies)
    forced = sum(step.symbol.forced for step in steps)
    return replace(message, forced=forced, **vars(found))


def read(speaker: Decoder, batch: Batch, rng: Generator | None = None, seen: Tensor | None = None) -> Message:
    """Teacher forcing in one piece: what `speak` with the batch's captions forced on it gives, faster."""
    if torch.is_grad_enabled() and not speaker.learns:
        with torch.no_grad():
            return read(speaker, batch, rng, seen)
    tokens = batch.captions
    drop = _dropout(speaker, Numbers(batch, rng))
    hidden, places = fitting(speaker).read(batch, speaker.see(batch) if seen is None else seen, drop)
    h = drop(hidden, places, tokens.shape[1])
    with torch.no_grad():
        logits = speaker.logits(h)
    chosen = SharedWeight(speaker.logit.weight).log_prob(h, speaker.logit.bias, logits, tokens.flatten()[places])
    log_probs = chosen.new_zeros(tokens.numel()).index_copy(0, places, chosen).view(tokens.shape)
    message = _message(tokens, 1, [])
    states = partial(_states, hidden.detach(), places, tokens.shape)
    return replace(message, log_probs=log_probs * message.mask, states=states)


def _dropout(speaker: Decoder, numbers: Numbers) -> Dropout:
    return Dropout(speaker.dropout if speaker.training else 0.0, numbers)


def _states(hidden: Tensor, places: Tensor, shape: torch.Size) -> Tensor:
    """(N, T, H): hidden states (M, H) at their places, 0 elsewhere."""
    table = hidden.new_zeros(shape.numel(), *hidden.shape[1:])
    return table.index_copy(0, places, hidden).view(*shape, *hidden.shape[1:])


def _left(ended: Tensor, together: int) -> Tensor:
    """(M,) int64: the rows of `ended` (N,) that go on; those of a beam stay `together`."""
    beams = ~ended.view(-1, together).all(1)
    return beams.repeat_interleave(together).nonzero().squeeze(1)


def _message(tokens: Tensor, samples: int, noted: Sequence[Noted]) -> Message:
    images = torch.arange(len(tokens), device=tokens.device) // samples
    states = partial(remembered, noted, len(tokens)) if noted else None
    return Message(tokens, caption_mask(tokens), images, samples, states=states)
