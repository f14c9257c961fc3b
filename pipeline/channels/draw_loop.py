"""The loop that draws words."""

# mypy: disable-error-code="no-untyped-def"

import numpy as np

from pipeline.runtime.compiled import compiled, exp

BLOCK = 64  # words that are added up before anything is asked of their sum


@compiled
def draw(logits, uniform, found):
    """A word `found` (N,) for each row of `logits` (N, V): where the sum of shares passes `uniform` (N,)."""
    words = logits.shape[1]
    sums = np.empty((words + BLOCK - 1) // BLOCK, logits.dtype)
    for n in range(len(logits)):
        top = logits[n, 0]
        for v in range(words):
            top = logits[n, v] if logits[n, v] > top else top
        total = 0.0
        for block in range(len(sums)):
            one = top * 0
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
        found[n] = v
