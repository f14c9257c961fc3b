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
            one = logits.dtype.type(0)
            for v in range(block * BLOCK, min(words, (block + 1) * BLOCK)):
                one += exp(logits[n, v] - top)
            sums[block] = one
            total += one
        left, block = uniform[n] * total, 0
        while block < len(sums) - 1 and left >= sums[block]:
            left -= sums[block]
            block += 1
        v, last = block * BLOCK, min(words, (block + 1) * BLOCK) - 1
        left -= exp(logits[n, v] - top)
        while v < last and left >= 0:
            v += 1
            left -= exp(logits[n, v] - top)
        while v > 0 and logits[n, v] == -np.inf:  # a rounding error may reach masked tokens at the end
            v -= 1
        tokens[n] = v


@compile_loop
def top_k_rows(logits, values, words):
    """Write the k ≤ V largest `values` (N, k) of each row of `logits` (N, V), descending, and their ids `words`."""
    size, least = logits.shape[1], logits.dtype.type(-np.inf)
    largest = np.empty((size + BLOCK - 1) // BLOCK, logits.dtype)
    # tokens not yet found per block: a maximum of −inf may be a masked token or an exhausted block
    left = np.empty(len(largest), np.int64)
    for n in range(len(logits)):
        for block in range(len(largest)):
            left[block] = min(size, (block + 1) * BLOCK) - block * BLOCK
            most = least
            for v in range(block * BLOCK, min(size, (block + 1) * BLOCK)):
                most = logits[n, v] if logits[n, v] > most else most
            largest[block] = most
        for i in range(words.shape[1]):
            block = -1
            for other in range(len(largest)):
                if left[other] > 0 and (block < 0 or largest[other] > largest[block]):
                    block = other
            token, rest = -1, least
            for v in range(block * BLOCK, min(size, (block + 1) * BLOCK)):
                new = True
                for earlier in range(i):
                    new = new and words[n, earlier] != v
                if new and token < 0 and not logits[n, v] < largest[block]:
                    token = v
                elif new and logits[n, v] > rest:
                    rest = logits[n, v]
            words[n, i], values[n, i] = token, logits[n, token]
            largest[block] = rest
            left[block] -= 1


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
