"""Additive attention of an unroll, its gradients made once (see table.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence

from pipeline.runtime import devices

CACHED = 2**18  # numbers at a time, of those that are gone through several times: 1 MiB stays in a core's cache


class Attention:
    """What N captions attend to, a step at a time: regions (N, R, H) by their keys (N, R, A); `mask` (N, R): which are.

    Scores are `weight` (A,) · tanh(key + query), shares their softmax over all regions, masked and summing to 1 again.
    """

    def __init__(self, keys: Tensor, regions: Tensor, mask: Tensor, weight: Tensor) -> None:
        self._queries = _Queries(keys.detach(), regions.detach(), mask, weight.detach())
        self._ticket: Tensor = _Attended.apply(keys, regions, weight, self._queries)

    def __call__(self, query: Tensor) -> Tensor:
        """(n, H): the regions of the first n captions by their shares for `query` (n, A)."""
        return _Attend.apply(self._ticket, self._queries, query)


class _Queries:
    def __init__(self, keys: Tensor, regions: Tensor, mask: Tensor, weight: Tensor) -> None:
        self.keys, self.regions, self.mask, self.weight = keys, regions, mask, weight
        self.together = max(1, CACHED // keys[0].numel()) if devices.synchronous(keys.device) else len(keys)
        self.forget()

    def forget(self) -> None:
        self.shares: list[Tensor] = []  # (n, R)
        self.gradients: list[Tensor] = []  # (n, H), of what was attended to
        self.slopes: Tensor | None = None  # (N, R, A): Σ over steps of the scores' gradients · tanh′
        self.of_weight = torch.zeros_like(self.weight)

    def activations(self, query: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """tanh(key + query) (m, R, A) of some captions of `query` (n, A) at a time, which fit into a cache."""
        for first in range(0, len(query), self.together):
            rows = slice(first, min(first + self.together, len(query)))
            yield rows, (self.keys[rows] + query[rows].unsqueeze(1)).tanh_()

    def back(self, query: Tensor, of_scores: Tensor) -> Tensor:
        """(n, A): the gradient of `query` from that of its scores (n, R); those of keys and weight are noted.

        Activations are computed again: to keep those of all steps would take more.
        """
        if self.slopes is None:
            self.slopes = torch.zeros_like(self.keys)
        found = torch.empty_like(query)
        for rows, active in self.activations(query):
            of = of_scores[rows]
            self.of_weight.addmv_(active.flatten(0, 1).T, of.flatten())
            slope = active.square_().neg_().add_(1)  # tanh′
            torch.mul(torch.bmm(of.unsqueeze(1), slope).squeeze(1), self.weight, out=found[rows])
            self.slopes[rows].addcmul_(of.unsqueeze(2), slope)
        return found


class _Attended(Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, regions: Tensor, weight: Tensor, queries: _Queries) -> Tensor:
        ctx.queries = queries
        return keys.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, nothing: Tensor) -> tuple[Tensor | None, ...]:
        queries = ctx.queries
        shares, gradients = (
            pad_sequence(x, batch_first=True) for x in (queries.shares, queries.gradients)
        )  # (T, N, …)
        regions = torch.bmm(shares.permute(1, 2, 0), gradients.transpose(0, 1))
        found = (queries.slopes.mul_(queries.weight), regions, queries.of_weight)
        queries.forget()
        return (*found, None)


class _Attend(Function):
    @staticmethod
    def forward(ctx: Any, ticket: Tensor, queries: _Queries, query: Tensor) -> Tensor:
        n = len(query)
        scores = torch.cat([active @ queries.weight for _, active in queries.activations(query)])
        shares = scores.softmax(-1) * queries.mask[:n]
        shares = shares / shares.sum(-1, keepdim=True)
        ctx.queries = queries
        ctx.save_for_backward(query, shares)
        return torch.bmm(shares.unsqueeze(1), queries.regions[:n]).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, Tensor]:
        queries, (query, shares) = ctx.queries, ctx.saved_tensors
        of_shares = torch.bmm(queries.regions[: len(d)], d.unsqueeze(2)).squeeze(2)
        of_scores = shares * (of_shares - (shares * of_shares).sum(-1, keepdim=True))
        queries.shares.append(shares)
        queries.gradients.append(d)
        return d.new_empty(0), None, queries.back(query, of_scores)
