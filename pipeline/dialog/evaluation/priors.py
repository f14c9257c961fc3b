"""Priors that rank candidate answers without a model: chance, and the frequency of human answers."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pipeline.dialog.data.prepared_dialogs import PreparedDialogs
from pipeline.dialog.settings import CHANCE, PRIOR


def prior_scores(name: str, dialogs: PreparedDialogs, train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return scores (n·R, O) float64 of the candidates in the dialogs about the images `rows` (n,).

    CHANCE: random numbers. PRIOR: the count of an answer in the dialogs about the images `train`. OF_QUESTION: its
    count after a question of the same tokens, with ties broken by the overall count.
    """
    options = dialogs.options[rows].reshape(-1, dialogs.options.shape[2])
    if name == CHANCE:
        return np.random.Generator(np.random.Philox(key=[0, len(rows)])).random(options.shape)
    human = dialogs.human_answers[train].ravel()
    counts = np.bincount(human, minlength=len(dialogs.answers)).astype(np.float64)
    if name == PRIOR:
        return counts[options]

    def texts(images: np.ndarray) -> list[bytes]:
        return [tokens.tobytes() for tokens in dialogs.questions[images].reshape(-1, dialogs.questions.shape[2])]

    given = Counter(zip(texts(train), human.tolist(), strict=True))
    own = [[given[asked, at] for at in offered.tolist()] for asked, offered in zip(texts(rows), options, strict=True)]
    return np.array(own) + counts[options] / (counts.sum() + 1)
