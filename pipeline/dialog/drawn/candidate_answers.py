"""Candidate answers to each question, as in VisDial: the human answer, and plausible, popular and random answers.

The first plausible answers are rivals: false answers of the same type, such as other colours. All candidates but the
human answer come from scenes that are in no data set. The candidates of an image thus depend on the seed and the image
alone, and the splits do not depend on each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import chain

import numpy as np

from pipeline.dialog.drawn.questioner import DialogRound

OPTIONS = 100  # number of candidates of a question
PLAUSIBLE, POPULAR = 50, 30  # maximum numbers of plausible answers, including rivals, and of popular answers
SYNONYMS = 4  # maximum number of true candidates besides the human answer
POOL_DIALOGS = 600  # number of dialogs from which candidates are drawn
LEADING_WORDS = 3  # words at the beginning of a question that are compared by position


class CandidatePool:
    """Questions and answers of other dialogs."""

    def __init__(self, dialogs: Iterable[Sequence[DialogRound]]) -> None:
        """Collect the answers of `dialogs`. Raises ValueError if they have too few distinct answers."""
        self._answers: dict[str, list[str]] = {}  # by question
        for question, answer in chain.from_iterable(dialogs):
            self._answers.setdefault(question.text, []).append(answer)
        self._all_answers = [answer for answers in self._answers.values() for answer in answers]
        counts = Counter(self._all_answers)
        self._popular = sorted(counts, key=lambda text: (-counts[text], text))[:POPULAR]
        if len(counts) < OPTIONS + len(self._popular):
            needed = OPTIONS + len(self._popular)
            raise ValueError(f"expected {needed} distinct answers or more, got {len(counts)}; give more dialogs")
        questions = list(self._answers)
        words = sorted({word for text in questions for word in text.split()})
        self._column = {word: i for i, word in enumerate(words)}
        frequencies = Counter(word for text in questions for word in set(text.split()))
        self._idf = np.log(len(questions) / np.array([frequencies[word] for word in words]))
        vectors = np.stack([self._compute_vector(text) for text in questions])
        self._questions, self._vectors, self._norms = questions, vectors, (vectors**2).sum(1)
        self.list_plausible = cache(self._list_plausible)

    def draw_candidates(
        self,
        question: str,
        truth: str,
        rng: np.random.Generator,
        rivals: Sequence[str] = (),
        true_answers: Collection[str] = (),
    ) -> tuple[list[str], int]:
        """Return OPTIONS distinct answers in random order, and the index of `truth`.

        The answers contain all `rivals`, and at most SYNONYMS of the `true_answers` besides `truth`.
        """
        candidates = dict.fromkeys((truth, *rivals))  # an ordered set
        synonyms = 0

        def add(texts: Iterable[str]) -> None:
            nonlocal synonyms
            for text in texts:
                if text not in candidates and (text not in true_answers or synonyms < SYNONYMS):
                    synonyms += text in true_answers
                    candidates[text] = None

        plausible = self.list_plausible(question)
        add(plausible[i] for i in rng.permutation(len(plausible))[: PLAUSIBLE - len(rivals)])
        add(self._popular)
        while len(candidates) < OPTIONS:
            add([self._all_answers[int(rng.random() * len(self._all_answers))]])
        options = [list(candidates)[i] for i in rng.permutation(OPTIONS)]
        return options, options.index(truth)

    def _list_plausible(self, question: str) -> list[str]:
        """Return answers to the most similar questions, with repetitions: at most 2 · PLAUSIBLE."""
        vector, answers = self._compute_vector(question), []
        for i in np.argsort(self._norms - 2 * self._vectors @ vector, kind="stable"):
            answers += self._answers[self._questions[i]]
            if len(answers) >= 2 * PLAUSIBLE:
                break
        return answers[: 2 * PLAUSIBLE]

    def _compute_vector(self, question: str) -> np.ndarray:
        """Return the idf of the question's words; the first LEADING_WORDS words have separate entries by position.

        The idf of the other words is divided by their number. Similar questions begin with the same words (Das et al.
        2017).
        """
        weights = np.zeros((LEADING_WORDS + 1, len(self._column)), np.float32)
        words = question.split()
        for n, word in enumerate(words):
            if (column := self._column.get(word)) is not None:
                share = 1 if n < LEADING_WORDS else 1 / (len(words) - LEADING_WORDS)
                weights[min(n, LEADING_WORDS), column] += self._idf[column] * share
        return weights.ravel()
