"""The recurrence of Att2in2 as one autograd operation per step: matrix products and compiled loops (loops.py).

The gradients of weights and regions are computed once for all steps, as in shared_weight.py.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence

from pipeline.models.kernels import loops

Part = TypeVar("Part")


class StepWeights(NamedTuple):
    """Weights of a step, and the attention's keys and regions."""

    keys: Tensor  # (B, R, A)
    regions: Tensor  # (B, R, H)
    attention: Tensor  # (A,)
    word: Tensor  # (5H, E)
    state: Tensor  # (5H, H)
    query: Tensor  # (A, H)
    attended: Tensor  # (2H, H)
    bias: Tensor  # (5H,): the sum of a step's biases


class FusedRecurrence:
    """Steps of one unroll for captions of B images, whose existing regions are in `mask` (B, R)."""

    def __init__(self, weights: StepWeights, mask: Tensor) -> None:
        self.steps = StepTape(StepWeights(*(weight.detach() for weight in weights)), mask)
        self._ticket: Tensor = _Shared.apply(self.steps, *weights)

    def entering(self, inputs: Tensor) -> Tensor:
        """Compute the contribution (n, 5H) of `inputs` (n, E) and of the bias to the gates."""
        return cast(Tensor, _Enter.apply(self._ticket, self.steps, inputs))

    def __call__(self, entering: Tensor, h: Tensor, c: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the next hidden states and cells (n, H) from `h`, `c` and the gate inputs `entering` (n, 5H).

        `images` (n,) are the captions' images; captions of one image must be consecutive.
        """
        h, c = _Step.apply(self._ticket, self.steps, entering, h, c, images)
        return h, c


class _Noted(NamedTuple):
    """Tensors of one step of n captions, from which the gradients of weights and regions are computed."""

    images: Tensor
    shares: Tensor  # (n, R)
    h: Tensor
    attended: Tensor
    of_attended: Tensor
    of_gates: Tensor
    of_query: Tensor


class StepTape:
    """Steps without a graph, and the tensors recorded for their gradients."""

    def __init__(self, weights: StepWeights, mask: Tensor) -> None:
        self.weights, self.mask = weights, mask.numpy()
        keys, self.regions, self.attention = (x.contiguous().numpy() for x in weights[:3])
        self.keys = np.empty_like(keys)
        loops.exponentials(keys.ravel(), self.keys.ravel())
        self.forget()

    def forget(self) -> None:
        self.noted: list[_Noted] = []
        # inputs (n, E), and the gradient of their gate inputs (n, 5H)
        self.entered: list[tuple[Tensor, Tensor]] = []
        self.of_keys: Tensor | None = None  # (B, R, A), without the factor `attention`
        self.of_attention = torch.zeros_like(self.weights.attention)

    def step(self, gates: Tensor, query: Tensor, c: Tensor, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute hidden states, cells (n, H), attention weights and attended regions of one step.

        `gates` (n, 5H) and `query` (n, A) are products of the previous states; `gates` is overwritten (loops.py).
        """
        shares, attended = self.shares(query, images)
        chosen, after, h = attended @ self.weights.attended.T, torch.empty_like(c), torch.empty_like(c)
        given = _arrays(gates, chosen, c, after, h)
        _beside(images, lambda rows: loops.lstm_forward(rows, *given))
        return h, after, shares, attended

    def shares(self, query: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the attention weights (n, R) and the attended regions (n, H)."""
        n, (_, regions, hidden) = len(query), self.regions.shape
        shares, attended = query.new_empty(n, regions), query.new_empty(n, hidden)
        arrays = _arrays(query, images, shares, attended)
        given = (self.keys, self.regions, self.mask, self.attention, *arrays)
        _beside(images, lambda rows: loops.attention_forward(rows, *given))
        return shares, attended

    def shares_back(self, query: Tensor, images: Tensor, shares: Tensor, d: Tensor) -> Tensor:
        """Compute the gradient (n, A) of `query` from `d` (n, H), that of the attended regions; record the keys'."""
        if self.of_keys is None:
            self.of_keys = torch.zeros_like(self.weights.keys, memory_format=torch.contiguous_format)
        of_query = torch.empty_like(query)
        arrays = _arrays(query, images, shares, d, of_query, self.of_keys)
        given = (self.keys, self.regions, self.attention, *arrays)

        def back(rows: tuple[int, int]) -> Tensor:
            of_attention = torch.zeros_like(self.of_attention)
            loops.attention_backward(rows, *given, of_attention.numpy())
            return of_attention

        for part in _beside(images, back):
            self.of_attention += part
        return of_query

    def gradients(self) -> StepWeights:
        """Return the gradients of all weights over all steps, and clear the recorded steps."""
        noted = _Noted(*(torch.cat(parts) for parts in zip(*self.noted, strict=True)))
        order = noted.images.argsort(stable=True)
        counts = noted.images.bincount(minlength=len(self.keys)).tolist()
        shares, of_attended = (
            pad_sequence(x[order].split(counts), batch_first=True) for x in (noted.shares, noted.of_attended)
        )
        assert self.of_keys is not None
        inputs, entered = (torch.cat(parts) for parts in zip(*self.entered, strict=True))
        gradients = StepWeights(
            keys=self.of_keys.mul_(self.weights.attention),
            regions=torch.bmm(shares.transpose(1, 2), of_attended),
            attention=self.of_attention,
            word=entered.T @ inputs,
            state=noted.of_gates.T @ noted.h,
            query=noted.of_query.T @ noted.h,
            attended=noted.of_gates[:, 3 * noted.h.shape[1] :].T @ noted.attended,
            bias=entered.sum(0),
        )
        self.forget()
        return gradients


class _Shared(Function):
    """An empty tensor that stands for the shared weights in the graph of every step."""

    @staticmethod
    def forward(ctx: Any, steps: StepTape, *weights: Tensor) -> Tensor:
        ctx.steps = steps
        return weights[0].new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, nothing: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.steps.gradients()


class _Enter(Function):
    @staticmethod
    def forward(ctx: Any, ticket: Tensor, steps: StepTape, inputs: Tensor) -> Tensor:
        ctx.steps = steps
        ctx.save_for_backward(inputs)
        return torch.addmm(steps.weights.bias, inputs, steps.weights.word.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        (inputs,) = ctx.saved_tensors
        ctx.steps.entered.append((inputs, d))
        return d.new_empty(0), None, d @ ctx.steps.weights.word if ctx.needs_input_grad[2] else None


class _Step(Function):
    @staticmethod
    def forward(
        ctx: Any, ticket: Tensor, steps: StepTape, entering: Tensor, h: Tensor, c: Tensor, images: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = steps.weights
        query = h @ weights.query.T
        gates = torch.addmm(entering, h, weights.state.T)
        new, after, shares, attended = steps.step(gates, query, c, images)
        ctx.steps = steps
        ctx.save_for_backward(images, query, shares, attended, h, c, gates, after)
        return new, after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_h: Tensor, of_after: Tensor) -> tuple[Tensor | None, ...]:
        images, query, shares, attended, h, c, gates, after = ctx.saved_tensors
        steps, weights = ctx.steps, ctx.steps.weights
        of_gates, of_c = torch.empty_like(gates), torch.empty_like(c)
        given = _arrays(gates, c, after, of_h.contiguous(), of_after.contiguous(), of_gates, of_c)
        _beside(images, lambda rows: loops.lstm_backward(rows, *given))
        of_attended = of_gates[:, 3 * h.shape[1] :] @ weights.attended
        of_query = steps.shares_back(query, images, shares, of_attended)
        steps.noted.append(_Noted(images, shares, h, attended, of_attended, of_gates, of_query))
        before = torch.addmm(of_gates @ weights.state, of_query, weights.query)
        return of_h.new_empty(0), None, of_gates, before, of_c, None


def _arrays(*tensors: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.detach().numpy() for tensor in tensors)


def _beside(images: Tensor, call: Callable[[tuple[int, int]], Part]) -> list[Part]:
    """Return the results of `call` on parts of the captions of `images` (n,), one part per thread of torch."""
    threads, n = min(torch.get_num_threads(), len(images)), len(images)
    if threads == 1:
        return [call((0, n))]
    cuts = [0, *(_cut(images, n * part // threads) for part in range(1, threads)), n]
    return list(_pool(threads).map(call, pairwise(cuts)))


def _cut(images: Tensor, at: int) -> int:
    """Return the first index from `at` on at which captions may be split without splitting an image."""
    while at < len(images) and images[at] == images[at - 1]:
        at += 1
    return at


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "attention")
