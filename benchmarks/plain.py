"""Speaker and listener as one would write them down: what the fast ones are measured against, and held to by tests.

Every caption is carried to the end, a word is a one-hot row that is multiplied with an embedding, every step is
differentiated by autograd.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from pipeline.models.listener import EPSILON, Listener
from pipeline.models.speaker import DROPOUT, Speaker
from pipeline.numbers import Numbers
from pipeline.protocols import Channel
from pipeline.types import Batch, Message, Places, Said, caption_mask

State = tuple[Tensor, Tensor]


class PlainSpeaker(Speaker):
    """Att2in2 with the plain unroll."""

    @classmethod
    def of(cls, speaker: Speaker) -> PlainSpeaker:
        """One with the weights of `speaker`."""
        return _copy(cls, speaker)

    def taken_in(self, batch: Batch, numbers: Numbers, width: int = 1) -> tuple[Tensor, Tensor, Tensor]:
        """Regions (N, R, H), keys and mask of each caption."""
        regions = self.drop(self.see(batch), numbers)
        mask = batch.region_mask.clone()
        if self.null is not None:
            mask[~mask.any(1), 0] = True
        parts = (regions, self.key(regions), mask)
        return tuple(x.repeat_interleave(width, 0) for x in parts)  # type: ignore[return-value]

    def plain_advance(self, words: Tensor, state: State, view: tuple[Tensor, Tensor, Tensor]) -> State:
        """One step on what is kept of word embeddings (N, E)."""
        (h, c), (regions, keys, mask) = state, view
        heard = self.from_word(words)
        attention = self.weight(torch.tanh(keys + self.query(h).unsqueeze(1))).squeeze(-1).softmax(-1) * mask
        attended = torch.bmm((attention / attention.sum(-1, keepdim=True)).unsqueeze(1), regions).squeeze(1)
        gates, candidate = (heard + self.from_state(h)).split([3 * self.hidden, 2 * self.hidden], -1)
        enter, forget, leave = gates.sigmoid().chunk(3, -1)
        candidate = torch.maximum(*(candidate + self.from_regions(attended)).chunk(2, -1))
        c = forget * c + enter * candidate
        return leave * torch.tanh(c), c

    def plain_speak(
        self, batch: Batch, channel: Channel, rng: Generator, gamma: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens (N, T), their log-probabilities and entropies (N, T), and what is heard of them (N, T, V+1).

        `gamma`: guidance.
        """
        total = len(batch) * channel.width
        numbers = Numbers(batch, rng).apart(DROPOUT)
        view, rows = self.taken_in(batch, numbers, channel.width), torch.arange(total, device=batch.device)
        choose = channel.open(batch, self.vocabulary, rng)
        state, ended = self.start(total, view[0]), torch.zeros_like(rows, dtype=torch.bool)
        unguided = state
        if gamma != 1:
            unseen = replace(batch, region_mask=torch.zeros_like(batch.region_mask))
            nothing = self.taken_in(unseen, numbers, channel.width)
        words = self.word(torch.full_like(rows, self.vocabulary + 1))
        silence = F.one_hot(torch.tensor(0, device=batch.device), self.vocabulary + 1).to(view[0])
        tokens: list[Tensor] = []
        log_probs: list[Tensor] = []
        entropies: list[Tensor] = []
        said: list[Tensor] = []
        for t in range(self.max_words):
            kept = self.drop(F.relu(words), numbers, rows, channel.width)
            state = self.plain_advance(kept, state, view)
            logits = self.logit(self.drop(state[0], numbers, rows, channel.width))
            if gamma != 1:
                unguided = self.plain_advance(kept, unguided, nothing)
                logits = gamma * logits + (1 - gamma) * self.logit(unguided[0])
            symbol = choose(t, logits.detach(), rows)
            distribution = logits.log_softmax(-1)
            if symbol.parent is not None:
                state = (state[0][symbol.parent], state[1][symbol.parent])
                unguided = (unguided[0][symbol.parent], unguided[1][symbol.parent])
                distribution, ended = distribution[symbol.parent], ended[symbol.parent]
                tokens, log_probs = [x[symbol.parent] for x in tokens], [x[symbol.parent] for x in log_probs]
                entropies = [x[symbol.parent] for x in entropies]
            index = symbol.index.masked_fill(ended, 0)
            tokens.append(index)
            log_probs.append(distribution.gather(1, index.unsqueeze(1)).squeeze(1).masked_fill(ended, 0))
            entropies.append(-(distribution.exp() * distribution).sum(1).masked_fill(ended, 0))
            words = self.word(symbol.index if symbol.fed is None else symbol.fed)
            if channel.relaxes:
                heard = F.one_hot(symbol.index, self.vocabulary + 1).to(silence)
                soft, hard = channel.relax(logits, symbol.noise, symbol.index), heard
                mixed = channel.distribution(logits, symbol.noise, symbol.index)
                whole = torch.zeros(total, 1, dtype=torch.bool, device=batch.device)
                if symbol.whole is not None:
                    whole[symbol.whole] = True
                heard = torch.where(whole, mixed, soft + (hard - soft).detach())
                heard = torch.where(symbol.through.unsqueeze(1), heard, hard)
                if symbol.onward:
                    words = torch.where(whole, mixed @ self.word.weight[:-1], words)
                said.append(torch.where(ended.unsqueeze(1), silence, heard))
            ended = index == 0
            if ended.all():
                break
        heard = torch.stack(said, 1) if said else silence
        return torch.stack(tokens, 1), torch.stack(log_probs, 1), torch.stack(entropies, 1), heard

    def speak(self, batch: Batch, channel: Channel, rng: Generator, seen: Tensor | None = None) -> Message:
        tokens, log_probs, entropies, said = self.plain_speak(batch, channel, rng)
        tokens = tokens.view(len(batch), channel.width, -1)[:, : channel.samples].flatten(0, 1)
        images = torch.arange(len(tokens), device=tokens.device) // channel.samples
        crossed = None
        if channel.relaxes:
            crossed = Said(whole=Places(torch.arange(tokens.numel(), device=tokens.device), said.flatten(0, 1)))
        return Message(tokens, caption_mask(tokens), images, channel.samples, log_probs, crossed, entropies)

    def read(self, batch: Batch, rng: Generator | None = None, seen: Tensor | None = None) -> Message:
        tokens, numbers = batch.captions, Numbers(batch, rng)
        view, state = self.taken_in(batch, numbers), self.start(len(batch), batch.regions)
        before = torch.cat([tokens.new_full((len(batch), 1), self.vocabulary + 1), tokens[:, :-1]], 1)
        words = self.drop(F.relu(self.word(before)), numbers)
        states = []
        for t in range(tokens.shape[1]):
            state = self.plain_advance(words[:, t], state, view)
            states.append(state[0])
        distribution = self.logit(self.drop(torch.stack(states, 1), numbers)).log_softmax(-1)
        log_probs = distribution.gather(2, tokens.unsqueeze(2)).squeeze(2) * caption_mask(tokens)
        images = torch.arange(len(tokens), device=tokens.device)
        return Message(tokens, caption_mask(tokens), images, 1, log_probs)


class PlainListener(Listener):
    """VSE++ that multiplies one-hot rows with its embedding."""

    @classmethod
    def of(cls, listener: Listener) -> PlainListener:
        """One with the weights of `listener`."""
        return _copy(cls, listener)

    def hear(self, message: Message) -> Tensor:
        return self.plain_hear(message.tokens, message.rows(self.vocabulary))

    def plain_hear(self, tokens: Tensor, said: Tensor) -> Tensor:
        """(N, H): captions (N, T) of which `said` (N, T, V+1) is heard."""
        assert self.gru is not None
        words = said.to(self.word.weight.dtype) @ self.word.weight[:-1]
        begin = self.word.weight[-1].expand(len(words), 1, -1)
        states, _ = self.gru(torch.cat([begin, words], 1))
        last = caption_mask(tokens).sum(1)
        return F.normalize(states[torch.arange(len(words), device=words.device), last], dim=-1, eps=EPSILON)


def _copy(cls: Any, model: nn.Module) -> Any:
    weight = next(model.parameters())
    made = cls(**model.arguments).to(weight.device, weight.dtype)
    made.load_state_dict(model.state_dict())
    return made.train(model.training)
