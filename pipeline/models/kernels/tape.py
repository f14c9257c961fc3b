"""Record of an unroll of Att2in2, whose backward pass is one autograd operation over all time steps.

A step needs no nodes of autograd's graph, and the gradient of each weight matrix is one product over all steps.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from pipeline.models.kernels import loops
from pipeline.models.kernels.recurrence import Step, StepKernels, StepWeights, run_in_parallel, to_arrays

BeforeStep = Callable[[int, Tensor, Tensor], None]  # step, gradients of its states (n, H) and of all gates (M, 5H)


class Tape:
    """Recorded steps of an unroll of at most `rows` rows over all steps."""

    def __init__(self, kernels: StepKernels, rows: int) -> None:
        self.kernels = kernels
        self.ends = [0]  # 0, then the index after the last row of each step
        self._parents: list[Tensor | None] = []
        self._buffer = Step.allocate(kernels.weights, rows)

    def record(self, images: Tensor, h: Tensor, c: Tensor, parents: Tensor | None) -> Step:
        """Return the tensors of the next step, whose gates are to be written, for n captions.

        `parents` (n,) are these captions' rows in the step before; None: the first n rows of that step.
        """
        start = self.ends[-1]
        step = self._buffer.part(start, start + len(images))
        step.images.copy_(images)
        step.previous_h.copy_(h)
        step.previous_c.copy_(c)
        self.ends.append(start + len(images))
        self._parents.append(parents)
        return step

    @property
    def gates(self) -> Tensor:
        """Return the gates of all rows, to be written before their steps are recorded."""
        return self._buffer.gates

    @property
    def steps(self) -> Step:
        """Return all recorded steps."""
        return self._buffer.part(0, self.ends[-1])

    def backward(
        self, grad_h: Tensor, inputs: Tensor, before_step: BeforeStep | None = None
    ) -> tuple[StepWeights, Tensor]:
        """Compute the gradients of the weights, and of all gates (M, 5H), from `grad_h` (M, H) of the states.

        `inputs` (M, E) are the inputs of all steps. `before_step`, called for the last step first, may add to the
        gradients of a step's states; the gradients of later steps' gates are known then.
        """
        weights, steps, sizes = self.kernels.weights, self.steps, [stop - start for start, stop in pairwise(self.ends)]
        grad_gates, grad_query = torch.empty_like(steps.gates), torch.empty_like(steps.query)
        grad_attended, grad_c = torch.empty_like(steps.attended), torch.empty_like(steps.c)
        grad_keys = torch.zeros_like(weights.keys, memory_format=torch.contiguous_format)
        grad_attention = torch.zeros_like(weights.attention)
        gradients = (grad_h.clone(memory_format=torch.contiguous_format), grad_gates, grad_query, grad_attended, grad_c)
        carried: tuple[Tensor, Tensor] | None = None  # gradients of the previous states and cells
        for t in reversed(range(len(sizes))):
            start, stop = self.ends[t : t + 2]
            step = steps.part(start, stop)
            d_h, d_gates, d_query, d_attended, d_c = (x[start:stop] for x in gradients)
            if before_step is not None:
                before_step(t, d_h, grad_gates)
            if carried is None:
                grad_new_c = torch.zeros_like(d_c)
            else:
                carried_h, grad_new_c = (_scatter(x, self._parents[t + 1], sizes[t]) for x in carried)
                d_h += carried_h
            self._backward_lstm(step, d_h, grad_new_c, d_gates, d_c)
            torch.mm(d_gates[:, 3 * d_h.shape[1] :], weights.attended, out=d_attended)
            self._backward_attention(step, d_attended, d_query, grad_keys, grad_attention)
            if t:
                carried = torch.addmm(d_gates @ weights.state, d_query, weights.query), d_c
        weight_gradients = StepWeights(
            keys=grad_keys.mul_(weights.attention),
            regions=_sum_by_image(steps.images, steps.alpha, grad_attended, len(weights.keys)),
            attention=grad_attention,
            word=grad_gates.T @ inputs,
            state=grad_gates.T @ steps.previous_h,
            query=grad_query.T @ steps.previous_h,
            attended=grad_gates[:, 3 * steps.h.shape[1] :].T @ steps.attended,
            bias=grad_gates.sum(0),
        )
        return weight_gradients, grad_gates

    def _backward_lstm(self, step: Step, d_h: Tensor, grad_new_c: Tensor, d_gates: Tensor, d_c: Tensor) -> None:
        arrays = to_arrays(step.gates, step.previous_c, step.c, d_h, grad_new_c, d_gates, d_c)
        run_in_parallel(step.images, lambda rows: loops.lstm_backward(rows, *arrays))

    def _backward_attention(
        self, step: Step, d_attended: Tensor, d_query: Tensor, grad_keys: Tensor, grad_attention: Tensor
    ) -> None:
        """Write `d_query` (n, A), and add to the gradients of the keys and of the attention vector."""
        kernels = self.kernels
        tensors = to_arrays(step.query, step.images, step.alpha, d_attended, d_query, grad_keys)
        arrays = (kernels.keys, kernels.regions, kernels.attention, *tensors)

        def compute_part(rows: tuple[int, int]) -> Tensor:
            grad_part = torch.zeros_like(grad_attention)
            loops.attention_backward(rows, *arrays, grad_part.numpy())
            return grad_part

        for part in run_in_parallel(step.images, compute_part):
            grad_attention += part


def connect(
    outputs: Sequence[Tensor], compute_gradients: Callable[..., tuple[Tensor | None, ...]], inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return `outputs` with a graph to `inputs`; `compute_gradients` maps output gradients to input gradients."""
    connected: tuple[Tensor, ...] = _Connection.apply(outputs, compute_gradients, *inputs)
    return connected


class _Connection(Function):
    @staticmethod
    def forward(
        ctx: Any, outputs: Sequence[Tensor], compute_gradients: Callable[..., Any], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.compute_gradients = compute_gradients
        return tuple(output.view_as(output) for output in outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *ctx.compute_gradients(*gradients)


def _scatter(x: Tensor, parents: Tensor | None, n: int) -> Tensor:
    """Return rows (n, H): `x` (m, H) at the rows `parents` (m,), None: at the first m rows; 0 elsewhere."""
    if parents is None and len(x) == n:
        return x
    table = x.new_zeros(n, x.shape[1])
    if parents is None:
        table[: len(x)] = x
        return table
    return table.index_copy_(0, parents, x)


def _sum_by_image(images: Tensor, alpha: Tensor, grad_attended: Tensor, count: int) -> Tensor:
    """Compute the gradients (B, R, H) of the regions of B = `count` images.

    They are sums of the products of attention weights `alpha` (M, R) and `grad_attended` (M, H); `images` is (M,).
    """
    order, counts = images.argsort(stable=True), images.bincount(minlength=count)
    sorted_images, max_count = images[order], int(counts.max())
    first = (counts.cumsum(0) - counts)[sorted_images]
    rows = sorted_images * max_count + torch.arange(len(images)) - first  # the k-th row of image b is b · max_count + k
    shares, gradients = (
        x.new_zeros(count * max_count, x.shape[1]).index_copy_(0, rows, x[order]).view(count, max_count, -1)
        for x in (alpha, grad_attended)
    )
    return torch.bmm(shares.transpose(1, 2), gradients)
