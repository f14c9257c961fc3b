"""Dialogs about images, as annotated."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

Words = tuple[str, ...]
T = TypeVar("T", bound=Hashable)


class DistinctTexts(Generic[T]):
    """Distinct texts, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}

    def add(self, text: T) -> int:
        """Return the index of `text`, which is added if it is new."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> tuple[T, ...]:
        """Return the distinct texts, in the order of their indices."""
        return tuple(self._numbers)


@dataclass(frozen=True, eq=False)
class Dialogs:
    """M dialogs of R rounds with O candidate answers: one dialog per image of a corpus, in the corpus's order."""

    captions: tuple[Words, ...]  # (M,)
    questions: tuple[Words, ...]  # distinct questions
    answers: tuple[Words, ...]  # distinct answers
    question: np.ndarray  # (M, R) int32: indices into `questions`
    options: np.ndarray  # (M, R, O) int32: indices into `answers`
    truth: np.ndarray  # (M, R) int32: index of the human answer among the options
    relevance: np.ndarray | None = None  # (M, R, O) float32: relevance of each option, NaN where not annotated
    kinds: np.ndarray | None = None  # (M, R) text: kind of question
    refers: np.ndarray | None = None  # (M, R) text: form of reference in the question: name, pronoun, ellipsis or none
    # drawn dialogs: every answer with a relevance above 0 → its relevance, by (dialog, round)
    answer_relevance: Mapping[tuple[int, int], Mapping[str, float]] | None = None

    def texts(self, mask: Sequence[bool]) -> Iterator[Words]:
        """Yield captions, questions and human answers of the dialogs in `mask` (M,) bool, with repetitions."""
        human = np.take_along_axis(self.options, self.truth[..., None].astype(np.int64), 2)[..., 0]
        for i in np.flatnonzero(mask):
            yield self.captions[i]
            for question, answer in zip(self.question[i], human[i], strict=True):
                yield self.questions[question]
                yield self.answers[answer]
