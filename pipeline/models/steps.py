"""Differentiable results of an unroll: the tokens' log-probabilities, or the relaxed tokens of a message.

All time steps are computed at once, with one vocabulary-sized product instead of one per step.
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
from pipeline.types import RelaxedTokens, TokenChoice, TokenDistributions


@dataclass
class UnrollStep:
    """One time step of n captions."""

    t: int
    rows: Tensor  # (n,) int64: indices of these captions
    alive: Tensor  # (n,) bool: captions without an earlier EOS
    states: Tensor  # (n, H), with a graph, after dropout
    logits: Tensor  # (n, V+1), without a graph
    symbol: TokenChoice
    soft: Tensor | None = None  # (K, V+1): the full distributions, with a graph

    @cached_property
    def full(self) -> Tensor:
        """The rows (K,) int64 whose full distributions are computed; on a GPU, all rows."""
        assert self.symbol.full is not None
        return mask_rows(self.symbol.full)

    def distribution(self, channel: RelaxingChannel, logit: SharedWeight, bias: Tensor) -> Tensor:
        """Compute the distributions (K, V+1) of the rows `full`, with a graph, once."""
        if self.soft is None:
            self.soft = relaxed_distributions([(self, self.full)], channel.distribution, logit, bias)
        return self.soft

    def goes_on_from(self, embedded: Tensor, mixed: Tensor) -> Tensor:
        """Return the next inputs (n, E): token embeddings, or `mixed` (K, E) in rows with a full distribution."""
        assert self.symbol.full is not None
        if not devices.is_synchronous(mixed.device):
            return torch.where(self.symbol.full.unsqueeze(1), mixed, embedded)
        return embedded.index_copy(0, self.full, mixed)


Part = tuple[UnrollStep, Tensor]  # a step and some of its rows, (M,) int64
Relax = Callable[[Tensor, Tensor | None, Tensor], Tensor]  # logits (M, V+1), noise, tokens (M,) → (M, V+1)


@dataclass(frozen=True)
class TokenLikelihoods:
    """Log-probabilities, entropies and logits of captions' tokens, with a graph."""

    log_probs: Tensor  # (N, T): 0 after the first EOS
    entropies: Tensor | None  # (N, T): 0 after the first EOS
    logits: Callable[[], TokenDistributions]


def token_likelihoods(
    unroll: Sequence[UnrollStep], logit: SharedWeight, bias: Tensor, tokens: Tensor, entropies: bool = False
) -> TokenLikelihoods:
    """Compute the likelihoods of `tokens` (N, T), with entropies if `entropies` is set."""
    parts = [(step, mask_rows(step.alive)) for step in unroll]
    index = torch.cat([step.symbol.index[rows] for step, rows in parts])
    states, value = _known(parts)
    there = _there([(step.alive, rows) for step, rows in parts])
    places = _places(parts, tokens.shape[1])

    def put(values: Tensor) -> Tensor:
        if there is not None:
            values = values.masked_fill(~there, 0)
        return values.new_zeros(tokens.numel()).index_copy(0, places, values).view(tokens.shape)

    def logits() -> TokenDistributions:
        return TokenDistributions(places, logit.product(states, bias, value), there)

    if not entropies:
        return TokenLikelihoods(put(logit.log_prob(states, bias, value, index)), None, logits)
    log_probs, undecided = logit.log_prob_and_entropy(states, bias, value, index)
    return TokenLikelihoods(put(log_probs), put(undecided), logits)


def relaxed_tokens(
    unroll: Sequence[UnrollStep], channel: RelaxingChannel, logit: SharedWeight, bias: Tensor, steps: int
) -> RelaxedTokens:
    """Compute the relaxed tokens of captions of `steps` tokens; tokens that pass no gradient are omitted."""
    words: list[Part] = []
    full: list[Part] = []
    soft: list[Tensor] = []
    of_words: list[tuple[Tensor, Tensor]] = []
    of_full: list[tuple[Tensor, Tensor]] = []
    for step in unroll:
        symbol = step.symbol
        assert symbol.straight_through is not None
        through = step.alive & symbol.straight_through
        if symbol.full is not None:
            relaxed, through = through & symbol.full, through & ~symbol.full
            chosen = mask_rows(relaxed[step.full])
            full.append((step, step.full[chosen]))
            of_full.append((relaxed, step.full[chosen]))
            soft.append(step.distribution(channel, logit, bias)[chosen])
        rows = mask_rows(through)
        words.append((step, rows))
        of_words.append((through, rows))
    return RelaxedTokens(
        TokenDistributions(
            _places(words, steps), relaxed_distributions(words, channel.relax, logit, bias), _there(of_words)
        ),
        TokenDistributions(_places(full, steps), torch.cat(soft), _there(of_full)) if full else None,
    )


def relaxed_distributions(parts: Sequence[Part], relax: Relax, logit: SharedWeight, bias: Tensor) -> Tensor:
    """Apply a channel's `relax` or `distribution` to these rows, (M, V+1), with a graph."""
    noises = [step.symbol.noise[rows] for step, rows in parts if step.symbol.noise is not None]
    index = torch.cat([step.symbol.index[rows] for step, rows in parts])
    states, value = _known(parts)
    return relax(logit.product(states, bias, value), torch.cat(noises) if noises else None, index)


def gather_states(noted: Sequence[tuple[Tensor, Tensor]], captions: int) -> Tensor:
    """Return a table (N, T, H) of the states (n, H) and rows (n,) `noted` at each step, for N = `captions`."""
    rows, states = noted[0]
    table = states.new_zeros(captions, len(noted), states.shape[1])
    for t, (rows, states) in enumerate(noted):
        table[rows, t] = states
    return table


def _known(parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    """Return the states (M, H) of these rows, with a graph, and their logits (M, V+1), without a graph."""
    states = torch.cat([step.states.index_select(0, rows) for step, rows in parts])
    value = parts[0][0].logits.new_empty(len(states), parts[0][0].logits.shape[1])
    for (step, rows), place in zip(parts, value.split([len(rows) for _, rows in parts]), strict=True):
        torch.index_select(step.logits, 0, rows, out=place)
    return states, value


def _places(parts: Sequence[Part], steps: int) -> Tensor:
    """Return the positions n·T + t of these rows, (M,) int64."""
    return torch.cat([step.rows[rows] * steps + step.t for step, rows in parts])


def mask_rows(mask: Tensor) -> Tensor:
    """Return the rows (M,) int64 where `mask` (n,) is True; on a GPU all rows, since a selection would synchronise."""
    if devices.is_synchronous(mask.device):
        return mask.nonzero().squeeze(1)
    return torch.arange(len(mask), device=mask.device)


def _there(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
    """Return a mask (M,) bool of the valid rows where `mask_rows` took all rows; else None."""
    if devices.is_synchronous(parts[0][0].device):
        return None
    return torch.cat([mask[rows] for mask, rows in parts])
