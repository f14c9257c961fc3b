"""Drift of words: n-grams that more captions have after a training than before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.data.corpus import tokenise

MAX_N = 3  # largest n of the n-grams
MAX_NGRAMS = 8  # n-grams shown for each n


@dataclass(frozen=True)
class NgramGrowth:
    """An n-gram, and the share of captions that have it before and after, in %."""

    words: tuple[str, ...]
    before: float
    after: float

    @property
    def growth(self) -> float:
        """Return the growth of the share, in points."""
        return self.after - self.before


def find_grown_ngrams(before: Sequence[str], after: Sequence[str]) -> list[NgramGrowth]:
    """Return the n-grams, n = 1 … 3, whose share of captions grew most, at most `MAX_NGRAMS` of each n, by growth."""
    ngrams = []
    for n in range(1, MAX_N + 1):
        shares = [_compute_shares(texts, n) for texts in (before, after)]
        increases = (NgramGrowth(words, shares[0].get(words, 0.0), share) for words, share in shares[1].items())
        order = sorted((each for each in increases if each.growth > 0), key=lambda each: (-each.growth, each.words))
        ngrams += order[:MAX_NGRAMS]
    return ngrams


def _compute_shares(texts: Sequence[str], n: int) -> dict[tuple[str, ...], float]:
    """Return the share of texts with each n-gram, in %."""
    counts: Counter[tuple[str, ...]] = Counter()
    for text in texts:
        words = tokenise(text)
        counts.update({tuple(words[first : first + n]) for first in range(len(words) - n + 1)})
    return {words: 100.0 * count / len(texts) for words, count in counts.items()}
