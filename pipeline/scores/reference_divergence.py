"""Kullback–Leibler divergence of the speaker from a fixed reference speaker, token by token."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from pipeline.models.decoder import Decoder
from pipeline.models.unroll import compute_forced_logits
from pipeline.types import Batch, Message

ROWS = 256  # distributions that are computed at a time


@dataclass(frozen=True, eq=False)
class ReferenceDivergence:
    """Minus KL(speaker ‖ reference) of a sampled caption, in nats: the sum over its tokens, first EOS included.

    At each token the divergence is exact, a sum over the vocabulary given the previous tokens. The score's mean over
    sampled captions is an unbiased estimate of minus the divergence of whole captions. The gradient passes through the
    distributions at the sampled prefixes, and by `ScoreFunction` through the probability of the prefixes. The reduction
    "words" divides the gradient by the mean number of tokens.

    The reference has no dropout. The divergence from the initial speaker is 0 at first if the speaker has no dropout.
    """

    reference: Decoder
    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return -self.per_token(message, batch).sum(1)

    def per_token(self, message: Message, batch: Batch) -> Tensor:
        """Compute the divergence at each token, (N, T), 0 after the first EOS. The result has gradients."""
        assert message.logits is not None, "expected a message of sampled captions"
        own = message.logits()
        other = compute_forced_logits(self.reference.to(batch.device), batch, message, own.positions)
        divergences = compute_divergence(own.probabilities, other)
        if own.valid is not None:
            divergences = divergences.masked_fill(~own.valid, 0)
        table = divergences.new_zeros(message.tokens.numel())
        return table.index_copy(0, own.positions, divergences).view(message.tokens.shape)


def compute_divergence(logits: Tensor, reference: Tensor) -> Tensor:
    """Compute KL(p ‖ q) (M,) of distributions with logits (M, V + 1); `reference` receives no gradient."""
    return cast(Tensor, _Divergence.apply(logits, reference))


class _Divergence(Function):
    """KL divergence with its gradient p · (log p − log q − KL); log-probabilities are recomputed, not kept."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, reference: Tensor) -> Tensor:
        value = torch.cat([(log_p.exp() * ratio).sum(1) for log_p, ratio in _compute_ratios(logits, reference)])
        ctx.save_for_backward(logits, reference, value)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None]:
        logits, reference, value = ctx.saved_tensors
        parts = zip(_compute_ratios(logits, reference), value.split(ROWS), d.split(ROWS), strict=True)
        gradients = [log_p.exp() * (ratio - kl.unsqueeze(1)) * d_kl.unsqueeze(1) for (log_p, ratio), kl, d_kl in parts]
        return torch.cat(gradients), None


def _compute_ratios(logits: Tensor, reference: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield log p and log p − log q, each (m, V + 1), of m ≤ ROWS distributions at a time."""
    for own, other in zip(logits.split(ROWS), reference.split(ROWS), strict=True):
        log_p = own.log_softmax(1)
        yield log_p, log_p - other.log_softmax(1)
