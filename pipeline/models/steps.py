"""Differentiable results of an unroll: the tokens' log-probabilities, or the relaxed tokens of a message.

The output layer's graph is built for all time steps at once, from the logits that the steps computed. Full
distributions are the exception: they are computed separately for each step.
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
    states: Tensor  # (n, H), after dropout; with a graph from `Unroll.connect` on
    logits: Tensor  # (n, V+1), without a graph
    choice: TokenChoice
    soft: Tensor | None = None  # (K, V+1): full distributions, with a graph from `Unroll.connect` on

    @cached_property
    def full(self) -> Tensor:
        """Return the rows (K,) int64 whose full distributions are computed; on a GPU, all rows."""
        assert self.choice.full is not None
        return select_masked_rows(self.choice.full)

    def distribution(self, channel: RelaxingChannel, logit: SharedWeight, bias: Tensor) -> Tensor:
        """Compute the distributions (K, V+1) of the rows `full`, with a graph; the result is cached."""
        if self.soft is None:
            self.soft = compute_relaxed_distributions([(self, self.full)], channel.distribution, logit, bias)
        return self.soft

    def next_inputs(self, embedded: Tensor, mixtures: Tensor) -> Tensor:
        """Return the next inputs (n, E): token embeddings, or `mixtures` (K, E) in rows with a full distribution."""
        assert self.choice.full is not None
        if not devices.is_synchronous(mixtures.device):
            return torch.where(self.choice.full.unsqueeze(1), mixtures, embedded)
        return embedded.index_copy(0, self.full, mixtures)


Part = tuple[UnrollStep, Tensor]  # a step and some of its rows, (M,) int64
Relax = Callable[[Tensor, Tensor | None, Tensor], Tensor]  # logits (M, V+1), noise, tokens (M,) → (M, V+1)


@dataclass(frozen=True)
class TokenLikelihoods:
    """Log-probabilities, entropies and logits of captions' tokens, with a graph."""

    log_probs: Tensor  # (N, T): 0 after the first EOS
    entropies: Tensor | None  # (N, T): 0 after the first EOS
    logits: Callable[[], TokenDistributions]


def compute_token_likelihoods(
    unroll: Sequence[UnrollStep], logit: SharedWeight, bias: Tensor, tokens: Tensor, entropies: bool = False
) -> TokenLikelihoods:
    """Compute the likelihoods of `tokens` (N, T), with entropies if `entropies` is set."""
    parts = [(step, select_masked_rows(step.alive)) for step in unroll]
    index = torch.cat([step.choice.index[rows] for step, rows in parts])
    states, step_logits = _gather_states_and_logits(parts)
    valid = _mask_valid_rows([(step.alive, rows) for step, rows in parts])
    positions = _compute_positions(parts, tokens.shape[1])

    def scatter(values: Tensor) -> Tensor:
        if valid is not None:
            values = values.masked_fill(~valid, 0)
        return values.new_zeros(tokens.numel()).index_copy(0, positions, values).view(tokens.shape)

    def compute_logits() -> TokenDistributions:
        return TokenDistributions(positions, logit.product(states, bias, step_logits), valid)

    if not entropies:
        return TokenLikelihoods(scatter(logit.log_prob(states, bias, step_logits, index)), None, compute_logits)
    log_probs, token_entropies = logit.log_prob_and_entropy(states, bias, step_logits, index)
    return TokenLikelihoods(scatter(log_probs), scatter(token_entropies), compute_logits)


def compute_relaxed_tokens(
    unroll: Sequence[UnrollStep], channel: RelaxingChannel, logit: SharedWeight, bias: Tensor, steps: int
) -> RelaxedTokens:
    """Compute the relaxed tokens of captions of `steps` tokens; tokens without a gradient are omitted."""
    words: list[Part] = []
    full: list[Part] = []
    soft: list[Tensor] = []
    word_masks: list[tuple[Tensor, Tensor]] = []
    full_masks: list[tuple[Tensor, Tensor]] = []
    for step in unroll:
        choice = step.choice
        assert choice.straight_through is not None
        word_mask = step.alive & choice.straight_through
        if choice.full is not None:
            full_mask, word_mask = word_mask & choice.full, word_mask & ~choice.full
            full_rows = select_masked_rows(full_mask[step.full])
            full.append((step, step.full[full_rows]))
            full_masks.append((full_mask, step.full[full_rows]))
            soft.append(step.distribution(channel, logit, bias)[full_rows])
        rows = select_masked_rows(word_mask)
        words.append((step, rows))
        word_masks.append((word_mask, rows))
    return RelaxedTokens(
        TokenDistributions(
            _compute_positions(words, steps),
            compute_relaxed_distributions(words, channel.relax, logit, bias),
            _mask_valid_rows(word_masks),
        ),
        TokenDistributions(_compute_positions(full, steps), torch.cat(soft), _mask_valid_rows(full_masks))
        if full
        else None,
    )


def compute_relaxed_distributions(parts: Sequence[Part], relax: Relax, logit: SharedWeight, bias: Tensor) -> Tensor:
    """Compute the distributions (M, V+1) of the rows of `parts` by `relax`, a method of the channel, with a graph."""
    noises = [step.choice.noise[rows] for step, rows in parts if step.choice.noise is not None]
    index = torch.cat([step.choice.index[rows] for step, rows in parts])
    states, logits = _gather_states_and_logits(parts)
    return relax(logit.product(states, bias, logits), torch.cat(noises) if noises else None, index)


def gather_states(recorded_states: Sequence[tuple[Tensor, Tensor]], captions: int) -> Tensor:
    """Return a table (N, T, H) of states for N = `captions`, from rows (n,) and states (n, H) of each step."""
    _, states = recorded_states[0]
    table = states.new_zeros(captions, len(recorded_states), states.shape[1])
    for t, (rows, states) in enumerate(recorded_states):
        table[rows, t] = states
    return table


def _gather_states_and_logits(parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
    """Return the states (M, H) of the rows of `parts` with a graph, and their logits (M, V+1) without one."""
    states = torch.cat([step.states.index_select(0, rows) for step, rows in parts])
    logits = parts[0][0].logits.new_empty(len(states), parts[0][0].logits.shape[1])
    for (step, rows), rows_out in zip(parts, logits.split([len(rows) for _, rows in parts]), strict=True):
        torch.index_select(step.logits, 0, rows, out=rows_out)
    return states, logits


def _compute_positions(parts: Sequence[Part], steps: int) -> Tensor:
    """Return the positions n·T + t of the rows of `parts`, (M,) int64; T = `steps`."""
    return torch.cat([step.rows[rows] * steps + step.t for step, rows in parts])


def select_masked_rows(mask: Tensor) -> Tensor:
    """Return the rows (M,) int64 where `mask` (n,) is True; on a GPU all rows, because a selection synchronises."""
    if devices.is_synchronous(mask.device):
        return mask.nonzero().squeeze(1)
    return torch.arange(len(mask), device=mask.device)


def _mask_valid_rows(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
    """Return a mask (M,) bool of the valid rows where `select_masked_rows` returned all rows; else None."""
    if devices.is_synchronous(parts[0][0].device):
        return None
    return torch.cat([mask[rows] for mask, rows in parts])
