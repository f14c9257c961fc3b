"""Loops over the vocabulary, compiled by numba."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import math

import numpy as np

from pipeline.runtime.compiled import compile_loop, exp

LANES = 16  # maxima that are computed in parallel
BLOCK = 64  # tokens whose sum or maximum is computed before blocks are searched


@compile_loop
def find_largest(row):
    """Return the largest element of `row` (V,), ignoring NaN after the first element."""
    lanes = np.empty(LANES, row.dtype)
    for k in range(LANES):
        lanes[k] = row[0]
    full = len(row) - len(row) % LANES
    for v in range(0, full, LANES):
        for k in range(LANES):  # the compiler vectorises this loop, but no maximum over one variable
            lanes[k] = row[v + k] if row[v + k] > lanes[k] else lanes[k]
    top = row[0]
    for k in range(LANES):
        top = lanes[k] if lanes[k] > top else top
    for v in range(full, len(row)):
        top = row[v] if row[v] > top else top
    return top


@compile_loop
def write_exponentials(row, top, exponentials):
    """Write exp(`row` − `top`), for `row` (V,), to `exponentials`."""
    for v in range(len(row)):
        exponentials[v] = exp(row[v] - top)


@compile_loop
def compute_sum(values):
    """Return the sum of `values` (V,)."""
    total = values.dtype.type(0)
    for v in range(len(values)):
        total += values[v]
    return total


@compile_loop
def sample_rows(logits, uniform, tokens):
    """Write to `tokens` (N,) the first token of each row of `logits` (N, V) with a CDF above `uniform` (N,)."""
    size = logits.shape[1]
    exponentials, sums = np.empty(size, logits.dtype), np.empty((size + BLOCK - 1) // BLOCK, logits.dtype)
    for n in range(len(logits)):
        row, total = logits[n], 0.0
        write_exponentials(row, find_largest(row), exponentials)
        for block in range(len(sums)):
            sums[block] = compute_sum(exponentials[block * BLOCK : (block + 1) * BLOCK])
            total += sums[block]
        remaining, block = uniform[n] * total, 0
        while block < len(sums) - 1 and remaining >= sums[block]:
            remaining -= sums[block]
            block += 1
        v, last = block * BLOCK, min(size, (block + 1) * BLOCK) - 1
        remaining -= exponentials[v]
        while v < last and remaining >= 0:
            v += 1
            remaining -= exponentials[v]
        while v > 0 and row[v] == -np.inf:  # a rounding error may reach masked tokens at the end
            v -= 1
        tokens[n] = v


@compile_loop
def top_k_rows(logits, values, words):
    """Write the k ≤ V largest `values` (N, k) of each row of `logits` (N, V), descending, and their ids `words`."""
    size, lowest = logits.shape[1], logits.dtype.type(-np.inf)
    largest = np.empty((size + BLOCK - 1) // BLOCK, logits.dtype)
    # tokens not yet selected per block: a maximum of −inf may be a masked token or an exhausted block
    remaining = np.empty(len(largest), np.int64)
    for n in range(len(logits)):
        for block in range(len(largest)):
            remaining[block] = min(size, (block + 1) * BLOCK) - block * BLOCK
            block_max = lowest
            for v in range(block * BLOCK, min(size, (block + 1) * BLOCK)):
                block_max = logits[n, v] if logits[n, v] > block_max else block_max
            largest[block] = block_max
        for i in range(words.shape[1]):
            block = -1
            for candidate in range(len(largest)):
                if remaining[candidate] > 0 and (block < 0 or largest[candidate] > largest[block]):
                    block = candidate
            token, rest = -1, lowest
            for v in range(block * BLOCK, min(size, (block + 1) * BLOCK)):
                unused = True
                for earlier in range(i):
                    unused = unused and words[n, earlier] != v
                if unused and token < 0 and not logits[n, v] < largest[block]:
                    token = v
                elif unused and logits[n, v] > rest:
                    rest = logits[n, v]
            words[n, i], values[n, i] = token, logits[n, token]
            largest[block] = rest
            remaining[block] -= 1


@compile_loop
def logsumexp_rows(logits, log_sums):
    """Write to `log_sums` (N,) the log-sum-exp of each row of `logits` (N, V)."""
    for n in range(len(logits)):
        top, total = find_largest(logits[n]), logits.dtype.type(0)
        for v in range(logits.shape[1]):
            total += exp(logits[n, v] - top)
        log_sums[n] = top + math.log(total)
