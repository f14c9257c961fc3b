"""What an unroll leaves to be differentiated: the words' log-probabilities, or what the listener hears of them.

All time steps at once: one product of the vocabulary's size instead of one per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.protocols import RelaxingChannel
from pipeline.runtime import devices
from pipeline.types import Places, Said, Symbol


@dataclass
class Step:
    """One time step of n captions."""

    t: int
    rows: Tensor  # (n,) int64: which captions these are
    alive: Tensor  # (n,) bool: which had not ended before
    states: Tensor  # (n, H), with a graph
    logits: Tensor  # (n, V+1), without
    symbol: Symbol
    soft: Tensor | None = None  # (K, V+1): the distributions that are heard full, with a graph

    @cached_property
    def full(self) -> Tensor:
        """(K,) int64: of these rows distributions are made; on a GPU of all."""
        assert self.symbol.full is not None
        return where(self.symbol.full)

    def distribution(self, channel: RelaxingChannel, logit: SharedWeight, bias: Tensor) -> Tensor:
        """(K, V+1): of the rows `full`, with a graph; made once."""
        if self.soft is None:
            self.soft = relaxed([(self, self.full)], channel.distribution, logit, bias)
        return self.soft

    def goes_on_from(self, embedded: Tensor, mixed: Tensor) -> Tensor:
        """(n, E): the embeddings of words, `mixed` (K, E) where a distribution is heard full."""
        assert self.symbol.full is not None
        if not devices.synchronous(mixed.device):
            return torch.where(self.symbol.full.unsqueeze(1), mixed, embedded)
        return embedded.index_copy(0, self.full, mixed)


Part = tuple[Step, Tensor]  # and some of its rows: (M,) int64
Relax = Callable[[Tensor, Tensor | None, Tensor], Tensor]  # logits (M, V+1), noise, words (M,) → (M, V+1)


@dataclass(frozen=True)
class Likelihoods:
    """What the words of captions were worth to the speaker, all with a graph."""

    log_probs: Tensor  # (N, T): 0 after a caption's end
    entropies: Tensor | None  # (N, T), the same
    logits: Callable[[], Places]


def likelihoods(
    spoken: Sequence[Step], logit: SharedWeight, bias: Tensor, tokens: Tensor, entropies: bool = False
) -> Likelihoods:
    """Of `tokens` (N, T), with `entropies` if asked for."""
    parts = [(step, where(step.alive)) for step in spoken]
    index = torch.cat([step.symbol.index[rows] for step, rows in parts])
    states, value = _known(parts)
    there = _there([(step.alive, rows) for step, rows in parts])
    places = _places(parts, tokens.shape[1])

    def put(found: Tensor) -> Tensor:
        if there is not None:
            found = found.masked_fill(~there, 0)
        return found.new_zeros(tokens.numel()).index_copy(0, places, found).view(tokens.shape)

    def logits() -> Places:
        return Places(places, logit.product(states, bias, value), there)

    if not entropies:
        return Likelihoods(put(logit.log_prob(states, bias, value, index)), None, logits)
    log_probs, undecided = logit.log_prob_and_entropy(states, bias, value, index)
    return Likelihoods(put(log_probs), put(undecided), logits)


def passed(spoken: Sequence[Step], channel: RelaxingChannel, logit: SharedWeight, bias: Tensor, steps: int) -> Said:
    """What is heard of captions of `steps` words; a word that passes no gradient is heard as itself."""
    words: list[Part] = []
    full: list[Part] = []
    soft: list[Tensor] = []
    of_words: list[tuple[Tensor, Tensor]] = []
    of_full: list[tuple[Tensor, Tensor]] = []
    for step in spoken:
        symbol = step.symbol
        assert symbol.through is not None
        through = step.alive & symbol.through
        if symbol.full is not None:
            heard, through = through & symbol.full, through & ~symbol.full
            chosen = where(heard[step.full])
            full.append((step, step.full[chosen]))
            of_full.append((heard, step.full[chosen]))
            soft.append(step.distribution(channel, logit, bias)[chosen])
        rows = where(through)
        words.append((step, rows))
        of_words.append((through, rows))
    return Said(
        Places(_places(words, steps), relaxed(words, channel.relax, logit, bias), _there(of_words)),
        Places(_places(full, steps), torch.cat(soft), _there(of_full)) if full else None,
    )


def relaxed(parts: Sequence[Part], relax: Relax, logit: SharedWeight, bias: Tensor) -> Tensor:
    """(M, V+1): what a channel's `relax` or `distribution` makes of these rows, with a graph."""
    noises = [step.symbol.noise[rows] for step, rows in parts if step.symbol.noise is not None]
    index = torch.cat([step.symbol.index[rows] for step, rows in parts])
    states, value = _known(parts)
    return relax(logit.product(states, bias, value), torch.cat(noises) if noises else None, index)


def remembered(noted: Sequence[tuple[Tensor, Tensor]], captions: int) -> Tensor:
    """(N, T, H): of `captions` (N) the states (n, H) that were noted at each step, with the rows (n,) they are of."""
    rows, states = noted[0]
    table = states.new_zeros(captions, len(noted), states.shape[1])
    for t, (rows, states) in enumerate(noted):
        table[rows, t] = states
    return table


def _known(parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    """States (M, H) of these rows, with a graph, and their logits (M, V+1), without."""
    states = torch.cat([step.states.index_select(0, rows) for step, rows in parts])
    value = parts[0][0].logits.new_empty(len(states), parts[0][0].logits.shape[1])
    for (step, rows), place in zip(parts, value.split([len(rows) for _, rows in parts]), strict=True):
        torch.index_select(step.logits, 0, rows, out=place)
    return states, value


def _places(parts: Sequence[Part], steps: int) -> Tensor:
    """(M,) int64: n·T + t."""
    return torch.cat([step.rows[rows] * steps + step.t for step, rows in parts])


def where(mask: Tensor) -> Tensor:
    """(M,) int64: the rows of `mask` (n,) that are True; on a GPU, which would have to wait for that, all rows."""
    if devices.synchronous(mask.device):
        return mask.nonzero().squeeze(1)
    return torch.arange(len(mask), device=mask.device)


def _there(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
    """(M,) bool: which rows of these masks count, where `where` took them all."""
    if devices.synchronous(parts[0][0].device):
        return None
    return torch.cat([mask[rows] for mask, rows in parts])
