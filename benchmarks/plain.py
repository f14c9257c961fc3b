"""Plain unroll and listener: the reference for the optimised forms in benchmarks and tests.

Ended captions stay in the batch until all captions have ended or have `max_words` tokens. The listener multiplies
distributions over tokens, such as one-hot rows, with its embedding. Autograd differentiates every step, and decoders
run without fused kernels.
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
from pipeline.types import Batch, Message, RelaxedTokens, TokenDistributions, make_caption_mask


def plain_unroll(
    speaker: Decoder, batch: Batch, channel: Channel, rng: Generator, gamma: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return tokens, log-probabilities and entropies (N, T), and the listener's input distributions (N, T, V+1).

    N is B·width: in a beam search, the results have all beams. `gamma` is the weight of guidance; 1 is no guidance.
    Without relaxation, the last result is the one-hot row of EOS (V+1,).
    """
    total, width = len(batch) * channel.width, channel.width
    drop = RolloutDropout(speaker.dropout if speaker.training else 0.0, BatchRandom(batch, rng).derive_stream(DROPOUT))
    rows = torch.arange(total, device=batch.device)
    encoded = speaker.encode_image(batch)
    state, choose = speaker.begin(batch, encoded, drop, width), channel.open(batch, speaker.vocabulary, rng)
    ended = torch.zeros_like(rows, dtype=torch.bool)
    if gamma != 1:
        without_image = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
        unguided = speaker.begin(without_image, speaker.encode_image(without_image), drop, width)
    words = speaker.word(torch.full_like(rows, speaker.vocabulary + 1))
    eos_row = F.one_hot(torch.tensor(0, device=batch.device), speaker.vocabulary + 1).to(encoded)
    tokens: list[Tensor] = []
    log_probs: list[Tensor] = []
    entropies: list[Tensor] = []
    inputs: list[Tensor] = []
    for t in range(speaker.max_words):
        hidden, state = speaker.step(words, state)
        logits = speaker.logit(drop(hidden, rows, width))
        if gamma != 1:
            unconditional, unguided = speaker.step(words, unguided)
            logits = gamma * logits + (1 - gamma) * speaker.logit(unconditional)
        choice = choose(t, logits.detach(), rows)
        distribution = logits.log_softmax(-1)
        if choice.parent is not None:
            state = speaker.select(state, choice.parent, same_images=True)
            if gamma != 1:
                unguided = speaker.select(unguided, choice.parent, same_images=True)
            distribution, ended = distribution[choice.parent], ended[choice.parent]
            tokens, log_probs = [x[choice.parent] for x in tokens], [x[choice.parent] for x in log_probs]
            entropies = [x[choice.parent] for x in entropies]
        index = choice.index.masked_fill(ended, 0)
        tokens.append(index)
        log_probs.append(distribution.gather(1, index.unsqueeze(1)).squeeze(1).masked_fill(ended, 0))
        entropies.append(-(distribution.exp() * distribution).sum(1).masked_fill(ended, 0))
        words = speaker.word(choice.index if choice.next_input is None else choice.next_input)
        if channel.relaxes:
            hard = F.one_hot(choice.index, speaker.vocabulary + 1).to(eos_row)
            soft = channel.relax(logits, choice.noise, choice.index)
            mixed = channel.distribution(logits, choice.noise, choice.index)
            full = torch.zeros_like(ended) if choice.full is None else choice.full
            relaxed = torch.where(full.unsqueeze(1), mixed, soft + (hard - soft).detach())
            listener_input = torch.where(choice.straight_through.unsqueeze(1), relaxed, hard)
            if choice.feeds_relaxed:
                words = torch.where(full.unsqueeze(1), mixed @ speaker.word.weight[:-1], words)
            inputs.append(torch.where(ended.unsqueeze(1), eos_row, listener_input))
        ended = index == 0
        if ended.all():
            break
    listener_inputs = torch.stack(inputs, 1) if inputs else eos_row
    return torch.stack(tokens, 1), torch.stack(log_probs, 1), torch.stack(entropies, 1), listener_inputs


def plain_generate(
    speaker: Decoder, batch: Batch, channel: Channel, rng: Generator, encoded: Tensor | None = None
) -> Message:
    """Return the captions and gradients of `unroll.generate` in a message; `encoded` is ignored.

    For every channel, the message has log-probabilities and entropies, and neither `states` nor `forced`. In a beam
    search, its log-probabilities and entropies belong to all beams, and its tokens to the first `samples` beams.
    """
    tokens, log_probs, entropies, inputs = plain_unroll(speaker, batch, channel, rng)
    tokens = tokens.view(len(batch), channel.width, -1)[:, : channel.samples].flatten(0, 1)
    images = torch.arange(len(tokens), device=tokens.device) // channel.samples
    relaxed = None
    if channel.relaxes:
        rows = torch.arange(tokens.numel(), device=tokens.device)
        relaxed = RelaxedTokens(full=TokenDistributions(rows, inputs.flatten(0, 1)))
    return Message(tokens, make_caption_mask(tokens), images, channel.samples, log_probs, relaxed, entropies)


def plain_teacher_force(
    speaker: Decoder, batch: Batch, rng: Generator | None = None, encoded: Tensor | None = None
) -> Message:
    """Return the log-probabilities of `unroll.teacher_force` in a message without `states`; `encoded` is ignored.

    With dropout, the log-probabilities are equal for Att2in only: other speakers draw other random numbers.
    """
    drop, tokens = RolloutDropout(speaker.dropout if speaker.training else 0.0, BatchRandom(batch, rng)), batch.captions
    force = Att2in.teacher_force if isinstance(speaker, Att2in) else Decoder.teacher_force
    hidden, _ = force(speaker, batch, speaker.encode_image(batch), drop)
    distribution = speaker.logit(drop(hidden, None, tokens.shape[1])).log_softmax(-1).view(*tokens.shape, -1)
    log_probs = distribution.gather(2, tokens.unsqueeze(2)).squeeze(2) * make_caption_mask(tokens)
    images = torch.arange(len(tokens), device=tokens.device)
    return Message(tokens, make_caption_mask(tokens), images, 1, log_probs)


class PlainListener(Listener):
    """A VSE++ listener with the encoder "gru", which multiplies distributions over tokens with its embedding."""

    @classmethod
    def from_listener(cls, listener: Listener) -> PlainListener:
        """Return a plain listener with the weights of `listener`."""
        weight = next(listener.parameters())
        plain = cls(**listener.arguments).to(weight.device, weight.dtype)
        plain.load_state_dict(listener.state_dict())
        return plain.train(listener.training)

    def encode_text(self, message: Message) -> Tensor:
        return self.encode_distributions(message.tokens, message.distributions(self.vocabulary))

    def encode_distributions(self, tokens: Tensor, distributions: Tensor) -> Tensor:
        """Return embeddings (N, H) of captions (N, T) given as `distributions` (N, T, V+1) over tokens."""
        assert self.gru is not None
        words = distributions.to(self.word.weight.dtype) @ self.word.weight[:-1]
        begin = self.word.weight[-1].expand(len(words), 1, -1)
        states, _ = self.gru(torch.cat([begin, words], 1))
        last = make_caption_mask(tokens).sum(1)
        return F.normalize(states[torch.arange(len(words), device=words.device), last], dim=-1, eps=EPSILON)
