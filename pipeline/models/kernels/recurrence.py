"""Recurrence of Att2in2 with one autograd operation per step: matrix products and compiled loops (loops.py).

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

Result = TypeVar("Result")


class StepWeights(NamedTuple):
    """Weights of a step, and the keys and regions of the attention."""

    keys: Tensor  # (B, R, A)
    regions: Tensor  # (B, R, H)
    attention: Tensor  # (A,)
    word: Tensor  # (5H, E)
    state: Tensor  # (5H, H)
    query: Tensor  # (A, H)
    attended: Tensor  # (2H, H)
    bias: Tensor  # (5H,): the sum of a step's biases


class FusedRecurrence:
    """Steps of one unroll for captions of B images; `mask` (B, R) is True for existing regions."""

    def __init__(self, weights: StepWeights, mask: Tensor) -> None:
        self.steps = StepTape(StepWeights(*(weight.detach() for weight in weights)), mask)
        self._graph_node: Tensor = _SharedWeights.apply(self.steps, *weights)

    def gate_inputs(self, inputs: Tensor) -> Tensor:
        """Compute the contribution (n, 5H) of `inputs` (n, E) and of the bias to the gates."""
        return cast(Tensor, _GateInputs.apply(self._graph_node, self.steps, inputs))

    def __call__(self, gate_inputs: Tensor, h: Tensor, c: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the next hidden states and cells (n, H) from `h`, `c` and the gate inputs `gate_inputs` (n, 5H).

        `images` (n,) are the captions' images; captions of one image must be consecutive.
        """
        h, c = _Step.apply(self._graph_node, self.steps, gate_inputs, h, c, images)
        return h, c


class _StepRecord(NamedTuple):
    """Tensors of one step of n captions, from which the gradients of weights and regions are computed."""

    images: Tensor
    alpha: Tensor  # (n, R): attention weights
    h: Tensor
    attended: Tensor
    grad_attended: Tensor
    grad_gates: Tensor
    grad_query: Tensor


class StepTape:
    """Steps without a graph, and the tensors that are recorded for their gradients."""

    def __init__(self, weights: StepWeights, mask: Tensor) -> None:
        self.weights, self.mask = weights, mask.numpy()
        keys, self.regions, self.attention = (x.contiguous().numpy() for x in weights[:3])
        self.keys = np.empty_like(keys)
        loops.exponentials(keys.ravel(), self.keys.ravel())
        self.clear()

    def clear(self) -> None:
        self.records: list[_StepRecord] = []
        # inputs (n, E), and the gradient of their gate inputs (n, 5H)
        self.inputs: list[tuple[Tensor, Tensor]] = []
        self.grad_keys: Tensor | None = None  # (B, R, A), without the factor `attention`
        self.grad_attention = torch.zeros_like(self.weights.attention)

    def step(self, gates: Tensor, query: Tensor, c: Tensor, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute hidden states, cells (n, H), attention weights and attended regions of one step.

        `gates` (n, 5H) and `query` (n, A) are products of the previous states; `gates` is overwritten (loops.py).
        """
        alpha, attended = self.attend(query, images)
        attended_candidates, new_c, h = attended @ self.weights.attended.T, torch.empty_like(c), torch.empty_like(c)
        arrays = _to_arrays(gates, attended_candidates, c, new_c, h)
        _run_in_parallel(images, lambda rows: loops.lstm_forward(rows, *arrays))
        return h, new_c, alpha, attended

    def attend(self, query: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the attention weights (n, R) and the attended regions (n, H)."""
        n, (_, regions, hidden) = len(query), self.regions.shape
        alpha, attended = query.new_empty(n, regions), query.new_empty(n, hidden)
        arrays = (self.keys, self.regions, self.mask, self.attention, *_to_arrays(query, images, alpha, attended))
        _run_in_parallel(images, lambda rows: loops.attention_forward(rows, *arrays))
        return alpha, attended

    def attend_backward(self, query: Tensor, images: Tensor, alpha: Tensor, d: Tensor) -> Tensor:
        """Compute the gradient (n, A) of `query` from the attended regions' gradient `d` (n, H).

        The gradients of the keys and of the attention vector are added to this tape.
        """
        if self.grad_keys is None:
            self.grad_keys = torch.zeros_like(self.weights.keys, memory_format=torch.contiguous_format)
        grad_query = torch.empty_like(query)
        tensors = _to_arrays(query, images, alpha, d, grad_query, self.grad_keys)
        arrays = (self.keys, self.regions, self.attention, *tensors)

        def compute_part(rows: tuple[int, int]) -> Tensor:
            grad_attention = torch.zeros_like(self.grad_attention)
            loops.attention_backward(rows, *arrays, grad_attention.numpy())
            return grad_attention

        for part in _run_in_parallel(images, compute_part):
            self.grad_attention += part
        return grad_query

    def gradients(self) -> StepWeights:
        """Return the gradients of all weights over all steps, and clear the recorded steps."""
        record = _StepRecord(*(torch.cat(parts) for parts in zip(*self.records, strict=True)))
        order = record.images.argsort(stable=True)
        counts = record.images.bincount(minlength=len(self.keys)).tolist()
        alpha, grad_attended = (
            pad_sequence(x[order].split(counts), batch_first=True) for x in (record.alpha, record.grad_attended)
        )
        assert self.grad_keys is not None
        inputs, grad_inputs = (torch.cat(parts) for parts in zip(*self.inputs, strict=True))
        gradients = StepWeights(
            keys=self.grad_keys.mul_(self.weights.attention),
            regions=torch.bmm(alpha.transpose(1, 2), grad_attended),
            attention=self.grad_attention,
            word=grad_inputs.T @ inputs,
            state=record.grad_gates.T @ record.h,
            query=record.grad_query.T @ record.h,
            attended=record.grad_gates[:, 3 * record.h.shape[1] :].T @ record.attended,
            bias=grad_inputs.sum(0),
        )
        self.clear()
        return gradients


class _SharedWeights(Function):
    """Empty tensor that represents the shared weights in the graph of every step."""

    @staticmethod
    def forward(ctx: Any, steps: StepTape, *weights: Tensor) -> Tensor:
        ctx.steps = steps
        return weights[0].new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_node: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.steps.gradients()


class _GateInputs(Function):
    @staticmethod
    def forward(ctx: Any, graph_node: Tensor, steps: StepTape, inputs: Tensor) -> Tensor:
        ctx.steps = steps
        ctx.save_for_backward(inputs)
        return torch.addmm(steps.weights.bias, inputs, steps.weights.word.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        (inputs,) = ctx.saved_tensors
        ctx.steps.inputs.append((inputs, d))
        return d.new_empty(0), None, d @ ctx.steps.weights.word if ctx.needs_input_grad[2] else None


class _Step(Function):
    @staticmethod
    def forward(
        ctx: Any, graph_node: Tensor, steps: StepTape, gate_inputs: Tensor, h: Tensor, c: Tensor, images: Tensor
    ) -> tuple[Tensor, Tensor]:
        weights = steps.weights
        query = h @ weights.query.T
        gates = torch.addmm(gate_inputs, h, weights.state.T)
        new_h, new_c, alpha, attended = steps.step(gates, query, c, images)
        ctx.steps = steps
        ctx.save_for_backward(images, query, alpha, attended, h, c, gates, new_c)
        return new_h, new_c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_new_h: Tensor, grad_new_c: Tensor) -> tuple[Tensor | None, ...]:
        images, query, alpha, attended, h, c, gates, new_c = ctx.saved_tensors
        steps, weights = ctx.steps, ctx.steps.weights
        grad_gates, grad_c = torch.empty_like(gates), torch.empty_like(c)
        arrays = _to_arrays(gates, c, new_c, grad_new_h.contiguous(), grad_new_c.contiguous(), grad_gates, grad_c)
        _run_in_parallel(images, lambda rows: loops.lstm_backward(rows, *arrays))
        grad_attended = grad_gates[:, 3 * h.shape[1] :] @ weights.attended
        grad_query = steps.attend_backward(query, images, alpha, grad_attended)
        steps.records.append(_StepRecord(images, alpha, h, attended, grad_attended, grad_gates, grad_query))
        grad_h = torch.addmm(grad_gates @ weights.state, grad_query, weights.query)
        return grad_new_h.new_empty(0), None, grad_gates, grad_h, grad_c, None


def _to_arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    return tuple(tensor.detach().numpy() for tensor in tensors)


def _run_in_parallel(images: Tensor, call: Callable[[tuple[int, int]], Result]) -> list[Result]:
    """Return the results of `call` on parts of the n captions, one part per thread of torch; `images` is (n,)."""
    threads, n = min(torch.get_num_threads(), len(images)), len(images)
    if threads == 1:
        return [call((0, n))]
    cuts = [0, *(_find_cut(images, n * part // threads) for part in range(1, threads)), n]
    return list(_get_pool(threads).map(call, pairwise(cuts)))


def _find_cut(images: Tensor, start: int) -> int:
    """Return the first index from `start` on at which a split divides no image."""
    while start < len(images) and images[start] == images[start - 1]:
        start += 1
    return start


@cache
def _get_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "attention")
