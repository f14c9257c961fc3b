"""Plain unroll and listener: the reference for the fast ones in benchmarks and tests.

Every caption is decoded to the end. A word is a one-hot row that is multiplied with an embedding. Autograd
differentiates every step, and decoders run in their plain form.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.models.listener import EPSILON, Listener
from pipeline.models.unroll import DROPOUT
from pipeline.protocols import Channel
from pipeline.random import BatchRandom
from pipeline.types import Batch, Message, RelaxedTokens, TokenDistributions, caption_mask


def unrolled(
    speaker: Decoder, batch: Batch, channel: Channel, rng: Generator, gamma: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return tokens, log-probabilities and entropies (N, T), and the listener's input distributions (N, T, V+1).

    `gamma` is the weight of guidance.
    """
    total, width = len(batch) * channel.width, channel.width
    drop = RolloutDropout(speaker.dropout if speaker.training else 0.0, BatchRandom(batch, rng).apart(DROPOUT))
    rows = torch.arange(total, device=batch.device)
    seen = speaker.encode_image(batch)
    state, choose = speaker.begin(batch, seen, drop, width), channel.open(batch, speaker.vocabulary, rng)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    if gamma != 1:
        unseen = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
        unguided = speaker.begin(unseen, speaker.encode_image(unseen), drop, width)
    words = speaker.word(torch.full_like(rows, speaker.vocabulary + 1))
    silence = F.one_hot(torch.tensor(0, device=batch.device), speaker.vocabulary + 1).to(seen)
    tokens: list[Tensor] = []
    log_probs: list[Tensor] = []
    entropies: list[Tensor] = []
    said: list[Tensor] = []
    for t in range(speaker.max_words):
        hidden, state = speaker.step(words, state)
        logits = speaker.logit(drop(hidden, rows, width))
        if gamma != 1:
            free, unguided = speaker.step(words, unguided)
            logits = gamma * logits + (1 - gamma) * speaker.logit(free)
        symbol = choose(t, logits.detach(), rows)
        distribution = logits.log_softmax(-1)
        if symbol.parent is not None:
            state = speaker.select(state, symbol.parent, same_images=True)
            if gamma != 1:
                unguided = speaker.select(unguided, symbol.parent, same_images=True)
            distribution, ended = distribution[symbol.parent], ended[symbol.parent]
            tokens, log_probs = [x[symbol.parent] for x in tokens], [x[symbol.parent] for x in log_probs]
            entropies = [x[symbol.parent] for x in entropies]
        index = symbol.index.masked_fill(ended, 0)
        tokens.append(index)
        log_probs.append(distribution.gather(1, index.unsqueeze(1)).squeeze(1).masked_fill(ended, 0))
        entropies.append(-(distribution.exp() * distribution).sum(1).masked_fill(ended, 0))
        words = speaker.word(symbol.index if symbol.next_input is None else symbol.next_input)
        if channel.relaxes:
            heard = F.one_hot(symbol.index, speaker.vocabulary + 1).to(silence)
            soft, hard = channel.relax(logits, symbol.noise, symbol.index), heard
            mixed = channel.distribution(logits, symbol.noise, symbol.index)
            full = torch.zeros_like(ended) if symbol.full is None else symbol.full
            heard = torch.where(full.unsqueeze(1), mixed, soft + (hard - soft).detach())
            heard = torch.where(symbol.straight_through.unsqueeze(1), heard, hard)
            if symbol.feeds_relaxed:
                words = torch.where(full.unsqueeze(1), mixed @ speaker.word.weight[:-1], words)
            said.append(torch.where(ended.unsqueeze(1), silence, heard))
        ended = index == 0
        if ended.all():
            break
    heard = torch.stack(said, 1) if said else silence
    return torch.stack(tokens, 1), torch.stack(log_probs, 1), torch.stack(entropies, 1), heard


def speak(speaker: Decoder, batch: Batch, channel: Channel, rng: Generator, seen: Tensor | None = None) -> Message:
    """Return the message of the unroll's `generate`, by the plain form."""
    tokens, log_probs, entropies, said = unrolled(speaker, batch, channel, rng)
    tokens = tokens.view(len(batch), channel.width, -1)[:, : channel.samples].flatten(0, 1)
    images = torch.arange(len(tokens), device=tokens.device) // channel.samples
    heard = None
    if channel.relaxes:
        heard = RelaxedTokens(
            full=TokenDistributions(torch.arange(tokens.numel(), device=tokens.device), said.flatten(0, 1))
        )
    return Message(tokens, caption_mask(tokens), images, channel.samples, log_probs, heard, entropies)


def read(speaker: Decoder, batch: Batch, rng: Generator | None = None, seen: Tensor | None = None) -> Message:
    """Return the message of the unroll's `teacher_force`; decoders other than Att2in2 only without dropout."""
    drop, tokens = RolloutDropout(speaker.dropout if speaker.training else 0.0, BatchRandom(batch, rng)), batch.captions
    reading = Att2in.teacher_force if isinstance(speaker, Att2in) else Decoder.teacher_force
    hidden, _ = reading(speaker, batch, speaker.encode_image(batch), drop)
    distribution = speaker.logit(drop(hidden, None, tokens.shape[1])).log_softmax(-1).view(*tokens.shape, -1)
    log_probs = distribution.gather(2, tokens.unsqueeze(2)).squeeze(2) * caption_mask(tokens)
    images = torch.arange(len(tokens), device=tokens.device)
    return Message(tokens, caption_mask(tokens), images, 1, log_probs)


class PlainListener(Listener):
    """A VSE++ listener that multiplies one-hot rows with its embedding."""

    @classmethod
    def of(cls, listener: Listener) -> PlainListener:
        """Return a plain listener with the weights of `listener`."""
        weight = next(listener.parameters())
        made = cls(**listener.arguments).to(weight.device, weight.dtype)
        made.load_state_dict(listener.state_dict())
        return made.train(listener.training)

    def encode_text(self, message: Message) -> Tensor:
        return self.plain_hear(message.tokens, message.distributions(self.vocabulary))

    def plain_hear(self, tokens: Tensor, said: Tensor) -> Tensor:
        """Return embeddings (N, H) of captions (N, T) given as distributions `said` (N, T, V+1)."""
        assert self.gru is not None
        words = said.to(self.word.weight.dtype) @ self.word.weight[:-1]
        begin = self.word.weight[-1].expand(len(words), 1, -1)
        states, _ = self.gru(torch.cat([begin, words], 1))
        last = caption_mask(tokens).sum(1)
        return F.normalize(states[torch.arange(len(words), device=words.device), last], dim=-1, eps=EPSILON)
