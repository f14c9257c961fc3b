"""Priors that rank candidate answers without a model: chance, and frequencies of human answers."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pipeline.dialog.data.prepared_dialogs import PreparedDialogs
from pipeline.dialog.settings import CHANCE, PRIOR


def compute_prior_scores(name: str, dialogs: PreparedDialogs, train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return scores (B·R, O) float64 of O candidates in R rounds of the dialogs about the images `rows` (B,).

    CHANCE gives random numbers. PRIOR gives the count of an answer among the human answers about the images `train`.
    QUESTION_PRIOR gives this count after questions with the same tokens; the overall count breaks ties.
    """
    options = dialogs.options[rows].reshape(-1, dialogs.options.shape[2])
    if name == CHANCE:
        return np.random.Generator(np.random.Philox(key=[0, len(rows)])).random(options.shape)
    human = dialogs.human_answers[train].ravel()
    counts = np.bincount(human, minlength=len(dialogs.answers)).astype(np.float64)
    if name == PRIOR:
        return counts[options]

    def encode_questions(images: np.ndarray) -> list[bytes]:
        return [tokens.tobytes() for tokens in dialogs.questions[images].reshape(-1, dialogs.questions.shape[2])]

    pairs = Counter(zip(encode_questions(train), human.tolist(), strict=True))
    after_question = [
        [pairs[question, answer] for answer in candidates.tolist()]
        for question, candidates in zip(encode_questions(rows), options, strict=True)
    ]
    return np.array(after_question) + counts[options] / (counts.sum() + 1)
