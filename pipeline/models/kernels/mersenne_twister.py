"""Uniform numbers equal to those of torch on the CPU, by compiled loops in a quarter of the time."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pipeline.random import BatchRandom
from pipeline.runtime.compiled import compile_loop
from pipeline.types import Batch

WORDS = 624  # words of the state
SHIFT, REST = 397, 227  # a word depends on the old word SHIFT places later, or on the new word REST places earlier


class TwisterRandom(BatchRandom):
    """Numbers of `BatchRandom` on a CPU, for a generator without other uses."""

    def __init__(self, batch: Batch, rng: torch.Generator) -> None:
        super().__init__(batch, rng)
        self._twister = MersenneTwister(rng.initial_seed())

    def draw(self, x: Tensor, *size: int) -> Tensor:
        return self._twister.rand(*size) if x.dtype == torch.float32 else super().draw(x, *size)


class MersenneTwister:
    """Stream of `torch.Generator().manual_seed(seed)` (mt19937), for uniform numbers in single precision."""

    def __init__(self, seed: int) -> None:
        self._state, self._before, self._used = np.empty(WORDS, np.uint32), np.empty(WORDS, np.uint32), WORDS
        begin(self._state, np.uint32(seed % 2**32))

    def rand(self, *size: int) -> Tensor:
        """Return the next numbers in [0, 1), as `torch.rand` does."""
        values = torch.empty(size)
        self._used = fill(self._state, self._before, self._used, values.view(-1).numpy())
        return values


@compile_loop
def begin(state, seed):
    """Initialise `state` (624,) by the seed."""
    state[0] = seed
    for k in range(1, len(state)):
        last = state[k - 1]
        state[k] = np.uint32(1812433253) * (last ^ (last >> np.uint32(30))) + np.uint32(k)


@compile_loop
def fill(state, before, used, values):
    """Write uniform numbers to `values` (N,), from word `used` of `state` (624,) on; return the next index.

    `before` (624,) is a buffer for the previous state.
    """
    at = 0
    while at < len(values):
        if used == WORDS:
            for k in range(WORDS):
                before[k] = state[k]
            twist(before, state)
            used = 0
        many = min(WORDS - used, len(values) - at)
        temper(state[used : used + many], values[at : at + many])
        used += many
        at += many
    return used


@compile_loop
def twist(before, after):
    """Compute the next words `after` (624,) from the words `before`."""
    mix(before[SHIFT:], before, before[1:], after[:REST])
    mix(after, before[REST:], before[REST + 1 :], after[REST : 2 * REST])
    mix(after[REST:], before[2 * REST :], before[2 * REST + 1 :], after[2 * REST : WORDS - 1])
    mix(after[SHIFT - 1 :], before[WORDS - 1 :], after, after[WORDS - 1 :])


@compile_loop
def mix(words, high, low, mixed):
    """Write `words` to `mixed` (N,), each combined with the highest bit of `high` and the other bits of `low`."""
    for k in range(len(mixed)):
        word = np.uint32(np.uint32(high[k] & np.uint32(0x80000000)) | np.uint32(low[k] & np.uint32(0x7FFFFFFF)))
        odd = np.uint32(np.uint32(word & np.uint32(1)) * np.uint32(0x9908B0DF))
        mixed[k] = np.uint32(words[k] ^ np.uint32(word >> np.uint32(1))) ^ odd


@compile_loop
def temper(words, values):
    """Write the uniform numbers of `words` to `values`: their low 24 bits after tempering, divided by 2²⁴."""
    for k in range(len(words)):
        y = np.uint32(words[k] ^ np.uint32(words[k] >> np.uint32(11)))
        y = np.uint32(y ^ np.uint32(np.uint32(y << np.uint32(7)) & np.uint32(0x9D2C5680)))
        y = np.uint32(y ^ np.uint32(np.uint32(y << np.uint32(15)) & np.uint32(0xEFC60000)))
        y = np.uint32(y ^ np.uint32(y >> np.uint32(18)))
        values[k] = np.float32(np.int32(y & np.uint32(0xFFFFFF))) * np.float32(2.0**-24)
