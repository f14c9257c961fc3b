"""Uniform random numbers equal to PyTorch's on the CPU, computed in less time by compiled loops."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pipeline.random import BatchRandom
from pipeline.runtime.compiled import compile_loop
from pipeline.types import Batch

WORDS = 624  # words of the state
SHIFT, REST = 397, 227  # a word depends on the old word SHIFT words later, or on the new word REST words earlier


class TwisterRandom(BatchRandom):
    """Fast `BatchRandom` on a CPU, for a generator without other uses."""

    def __init__(self, batch: Batch, rng: torch.Generator) -> None:
        super().__init__(batch, rng)
        self._twister = MersenneTwister(rng.initial_seed())

    def draw(self, x: Tensor, *size: int) -> Tensor:
        return self._twister.rand(*size) if x.dtype == torch.float32 else super().draw(x, *size)

    def keep_mask(self, x: Tensor, keep: float, rows: Tensor | None = None, width: int = 1) -> Tensor:
        if x.dtype != torch.float32:
            return super().keep_mask(x, keep, rows, width)
        values = self._twister.rand(self.batch.total * width, x[0].numel()).numpy()
        start, mask = self.batch.first * width, torch.empty(x.shape)
        selected = np.arange(len(x)) if rows is None else rows.numpy()
        threshold = np.float32(keep)
        select_kept(values, selected, start, threshold, np.float32(1) / threshold, mask.view(len(x), -1).numpy())
        return mask


class MersenneTwister:
    """Stream of `torch.Generator().manual_seed(seed)` (mt19937), for uniform numbers in single precision."""

    def __init__(self, seed: int) -> None:
        self._state, self._previous, self._used = np.empty(WORDS, np.uint32), np.empty(WORDS, np.uint32), WORDS
        begin(self._state, np.uint32(seed % 2**32))

    def rand(self, *size: int) -> Tensor:
        """Return the next numbers in [0, 1), as `torch.rand` does."""
        values = torch.empty(size)
        self._used = fill(self._state, self._previous, self._used, values.view(-1).numpy())
        return values


@compile_loop
def select_kept(values, rows, start, keep, scale, mask):
    """Write `scale` to `mask` (n, D) where the rows `rows` + `start` of `values` (N, D) are below `keep`, else 0."""
    for n in range(len(rows)):
        row = values[start + rows[n]]
        for d in range(mask.shape[1]):
            mask[n, d] = scale if row[d] < keep else np.float32(0)


@compile_loop
def begin(state, seed):
    """Initialise `state` (624,) from the seed."""
    state[0] = seed
    for k in range(1, len(state)):
        previous = state[k - 1]
        state[k] = np.uint32(1812433253) * (previous ^ (previous >> np.uint32(30))) + np.uint32(k)


@compile_loop
def fill(state, previous, used, values):
    """Write uniform numbers to `values` (N,), from word `used` of `state` (624,) on; return the next index.

    `previous` (624,) is a buffer for the previous state.
    """
    start = 0
    while start < len(values):
        if used == WORDS:
            for k in range(WORDS):
                previous[k] = state[k]
            twist(previous, state)
            used = 0
        count = min(WORDS - used, len(values) - start)
        temper(state[used : used + count], values[start : start + count])
        used += count
        start += count
    return used


@compile_loop
def twist(old, new):
    """Compute the next words `new` (624,) from the words `old`."""
    mix(old[SHIFT:], old, old[1:], new[:REST])
    mix(new, old[REST:], old[REST + 1 :], new[REST : 2 * REST])
    mix(new[REST:], old[2 * REST :], old[2 * REST + 1 :], new[2 * REST : WORDS - 1])
    mix(new[SHIFT - 1 :], old[WORDS - 1 :], new, new[WORDS - 1 :])


@compile_loop
def mix(words, high, low, out):
    """Write `words` to `out` (N,), each combined with the highest bit of `high` and the other bits of `low`."""
    for k in range(len(out)):
        word = np.uint32(np.uint32(high[k] & np.uint32(0x80000000)) | np.uint32(low[k] & np.uint32(0x7FFFFFFF)))
        odd = np.uint32(np.uint32(word & np.uint32(1)) * np.uint32(0x9908B0DF))
        out[k] = np.uint32(words[k] ^ np.uint32(word >> np.uint32(1))) ^ odd


@compile_loop
def temper(words, values):
    """Write the uniform numbers of `words` to `values`: their low 24 bits after tempering, divided by 2²⁴."""
    for k in range(len(words)):
        y = np.uint32(words[k] ^ np.uint32(words[k] >> np.uint32(11)))
        y = np.uint32(y ^ np.uint32(np.uint32(y << np.uint32(7)) & np.uint32(0x9D2C5680)))
        y = np.uint32(y ^ np.uint32(np.uint32(y << np.uint32(15)) & np.uint32(0xEFC60000)))
        y = np.uint32(y ^ np.uint32(y >> np.uint32(18)))
        values[k] = np.float32(np.int32(y & np.uint32(0xFFFFFF))) * np.float32(2.0**-24)
