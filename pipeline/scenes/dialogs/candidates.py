"""A hundred candidate answers to each question, as VisDial has them: the truth, plausible, popular and random ones.

They are other people's answers, from dialogs about scenes that are in no data set, so those of an image depend on the
seed and the image alone, and a training split knows nothing of a test split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from pipeline.scenes.dialogs.questioner import Round

OPTIONS, SIMILAR, POPULAR = 100, 50, 30
OTHERS = 600  # dialogs that candidates come from
BEGINNING = 3  # words at which a question's place counts


class Others:
    """Questions and answers of other people."""

    def __init__(self, dialogs: Iterable[Sequence[Round]]) -> None:
        """Raises ValueError where they have fewer different answers than are needed."""
        self._answers: dict[str, list[str]] = {}  # by question
        for question, answer in (each for dialog in dialogs for each in dialog):
            self._answers.setdefault(question.text, []).append(answer)
        self._all = [answer for answers in self._answers.values() for answer in answers]
        counts = Counter(self._all)
        self._popular = sorted(counts, key=lambda text: (-counts[text], text))[:POPULAR]
        if len(counts) < OPTIONS + len(self._popular):
            raise ValueError(f"{len(counts)} different answers are too few for {OPTIONS} candidates")
        texts = list(self._answers)
        words = sorted({word for text in texts for word in text.split()})
        self._place = {word: i for i, word in enumerate(words)}
        held = Counter(word for text in texts for word in set(text.split()))
        self._rarity = np.log(len(texts) / np.array([held[word] for word in words]))
        vectors = np.stack([self._vector(text) for text in texts])
        self._texts, self._vectors, self._norms = texts, vectors, (vectors**2).sum(1)
        self.plausible = cache(self._plausible)

    def candidates(self, question: str, truth: str, rng: np.random.Generator) -> tuple[list[str], int]:
        """OPTIONS different answers in random order, and which of them is `truth`."""
        chosen = {truth: None}  # an ordered set
        plausible = self.plausible(question)
        for i in rng.permutation(len(plausible))[:SIMILAR]:
            chosen[plausible[i]] = None
        chosen |= dict.fromkeys(self._popular)
        while len(chosen) < OPTIONS:
            chosen[self._all[int(rng.random() * len(self._all))]] = None
        options = [list(chosen)[i] for i in rng.permutation(OPTIONS)]
        return options, options.index(truth)

    def _plausible(self, question: str) -> list[str]:
        """Answers to the most similar questions, as often as they were given: two times those that are needed."""
        vector, found = self._vector(question), []
        for i in np.argsort(self._norms - 2 * self._vectors @ vector, kind="stable"):
            found += self._answers[self._texts[i]]
            if len(found) >= 2 * SIMILAR:
                break
        return found[: 2 * SIMILAR]

    def _vector(self, question: str) -> np.ndarray:
        """Rarities of its words, the first by place: similar questions begin alike (Das et al. 2017)."""
        found = np.zeros((BEGINNING + 1, len(self._place)), np.float32)
        words = question.split()
        for n, word in enumerate(words):
            if (place := self._place.get(word)) is not None:
                share = 1 if n < BEGINNING else 1 / (len(words) - BEGINNING)
                found[min(n, BEGINNING), place] += self._rarity[place] * share
        return found.ravel()
