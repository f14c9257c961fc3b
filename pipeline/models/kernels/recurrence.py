"""Steps of Att2in2 without a graph, by matrix products and compiled loops (loops.py)."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import pairwise
from typing import NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

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


class TransposedWeights(NamedTuple):
    """Transposed matrices of `StepWeights`, contiguous."""

    word: Tensor  # (E, 5H)
    state: Tensor  # (H, 5H)
    query: Tensor  # (H, A)


class Step(NamedTuple):
    """Inputs and results of one step of n captions, or of consecutive steps, concatenated."""

    images: Tensor  # (n,) int64: indices of the captions' images; captions of one image are consecutive
    previous_h: Tensor  # (n, H)
    previous_c: Tensor  # (n, H)
    query: Tensor  # (n, A)
    gates: Tensor  # (n, 5H)
    alpha: Tensor  # (n, R): attention weights
    attended: Tensor  # (n, H)
    h: Tensor  # (n, H)
    c: Tensor  # (n, H)

    @classmethod
    def allocate(cls, weights: StepWeights, n: int) -> Self:
        """Return uninitialised tensors for `n` captions."""
        attention, hidden = weights.query.shape
        regions = weights.keys.shape[1]
        images = torch.empty(n, dtype=torch.int64)
        sizes = (hidden, hidden, attention, 5 * hidden, regions, hidden, hidden, hidden)
        return cls(images, *(weights.state.new_empty(n, size) for size in sizes))

    def part(self, start: int, stop: int) -> Self:
        """Return the rows from `start` to `stop` of all tensors, which share memory with this object."""
        return type(self)(*(x[start:stop] for x in self))


class StepKernels:
    """Computation of steps for captions of B images; `mask` (B, R) is True for existing regions."""

    def __init__(self, weights: StepWeights, mask: Tensor) -> None:
        self.weights = StepWeights(*(weight.detach() for weight in weights))
        self._attended = self.weights.attended.T.contiguous()
        self.mask = mask.numpy()
        keys, self.regions, self.attention = (x.contiguous().numpy() for x in self.weights[:3])
        self.keys = np.empty_like(keys)
        loops.compute_exponentials(keys.ravel(), self.keys.ravel())

    @cached_property
    def transposed(self) -> TransposedWeights:
        """Return contiguous transposed matrices, which make products with few rows faster."""
        matrices = self.weights.word, self.weights.state, self.weights.query
        return TransposedWeights(*(matrix.T.contiguous() for matrix in matrices))

    def step(self, step: Step) -> None:
        """Compute one step from its images, previous states and gates, which hold the contribution of the inputs."""
        torch.mm(step.previous_h, self.transposed.query, out=step.query)
        step.gates.addmm_(step.previous_h, self.transposed.state)
        self.finish(step)

    def finish(self, step: Step) -> None:
        """Compute one step from its images, previous cells, queries and gates before their activation."""
        tensors = to_arrays(step.query, step.images, step.alpha, step.attended)
        arrays = (self.keys, self.regions, self.mask, self.attention, *tensors)
        run_in_parallel(step.images, lambda rows: loops.attention_forward(rows, *arrays))
        candidates = step.attended @ self._attended
        gates = to_arrays(step.gates, candidates, step.previous_c, step.c, step.h)
        run_in_parallel(step.images, lambda rows: loops.lstm_forward(rows, *gates))


def to_arrays(*tensors: Tensor) -> tuple[np.ndarray, ...]:
    """Return NumPy arrays that share memory with `tensors`."""
    return tuple(tensor.numpy() for tensor in tensors)


def run_in_parallel(images: Tensor, compute: Callable[[tuple[int, int]], Result]) -> list[Result]:
    """Return the results of `compute` on parts of the n captions, one part per thread of torch; `images` is (n,)."""
    n = len(images)
    threads = max(1, min(torch.get_num_threads(), n))
    if threads == 1:
        return [compute((0, n))]
    cuts = [0, *(_find_cut(images, n * part // threads) for part in range(1, threads)), n]
    return list(_get_pool(threads).map(compute, pairwise(cuts)))


def _find_cut(images: Tensor, start: int) -> int:
    """Return the first index from `start` on at which a split divides no image."""
    while start < len(images) and images[start] == images[start - 1]:
        start += 1
    return start


@cache
def _get_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "attention")
