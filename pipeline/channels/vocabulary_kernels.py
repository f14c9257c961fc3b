"""Loops over the vocabulary, compiled by numba."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import math

import numpy as np

from pipeline.runtime.compiled import compile_loop, exp

BLOCK = 64  # tokens whose sum or maximum is computed before blocks are searched


@compile_loop
def sample_rows(logits, uniform, tokens):
    """Write to `tokens` (N,) the token of each row of `logits` (N, V) whose cumulative share passes `uniform` (N,)."""
    words = logits.shape[1]
    sums = np.empty((words + BLOCK - 1) // BLOCK, logits.dtype)
    for n in range(len(logits)):
        top = logits[n, 0]
        for v in range(words):
            top = logits[n, v] if logits[n, v] > top else top
        total = 0.0
        for block in range(len(sums)):
            block_sum = logits.dtype.type(0)
            for v in range(block * BLOCK, min(words, (block + 1) * BLOCK)):
                block_sum += exp(logits[n, v] - top)
            sums[block] = block_sum
            total += block_sum
        remaining, block = uniform[n] * total, 0
        while block < len(sums) - 1 and remaining >= sums[block]:
            remaining -= sums[block]
            block += 1
        v, last = block * BLOCK, min(words, (block + 1) * BLOCK) - 1
        remaining -= exp(logits[n, v] - top)
        while v < last and remaining >= 0:
            v += 1
            remaining -= exp(logits[n, v] - top)
        while v > 0 and logits[n, v] == -np.inf:  # a rounding error may reach masked tokens at the end
            v -= 1
        tokens[n] = v


@compile_loop
def top_k_rows(logits, values, words):
    """Write the k ≤ V largest `values` (N, k) of each row of `logits` (N, V), descending, and their ids `words`."""
    size, lowest = logits.shape[1], logits.dtype.type(-np.inf)
    largest = np.empty((size + BLOCK - 1) // BLOCK, logits.dtype)
    # tokens not yet found per block: a maximum of −inf may be a masked token or an exhausted block
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
        top = logits[n, 0]
        for v in range(logits.shape[1]):
            top = logits[n, v] if logits[n, v] > top else top
        total = logits.dtype.type(0)
        for v in range(logits.shape[1]):
            total += exp(logits[n, v] - top)
        log_sums[n] = top + math.log(total)
