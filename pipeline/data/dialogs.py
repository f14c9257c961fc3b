"""Dialogs about images, as annotated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Words = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Dialogs:
    """M dialogs of R rounds with O candidate answers: one about each image of a corpus, in its order."""

    captions: tuple[Words, ...]  # (M,)
    questions: tuple[Words, ...]  # different ones
    answers: tuple[Words, ...]  # the same
    question: np.ndarray  # (M, R) int32: which of `questions`
    options: np.ndarray  # (M, R, O) int32: which of `answers`
    truth: np.ndarray  # (M, R) int32: which option a human gave
    relevance: np.ndarray | None = None  # (M, R, O) float32: how right each option is, NaN where nobody knows
    kinds: np.ndarray | None = None  # (M, R) text: what is asked
    refers: np.ndarray | None = None  # (M, R) text: how: by name, pronoun, ellipsis or none
    right: Mapping[tuple[int, int], Mapping[str, float]] | None = None  # how right any answer is, of drawn dialogs

    def texts(self, counted: Sequence[bool]) -> Iterator[Words]:
        """Captions, questions and human answers of the dialogs that are `counted` (M,), as often as they were said."""
        human = np.take_along_axis(self.options, self.truth[..., None].astype(np.int64), 2)[..., 0]
        for i in np.flatnonzero(counted):
            yield self.captions[i]
            for question, answer in zip(self.question[i], human[i], strict=True):
                yield self.questions[question]
                yield self.answers[answer]
