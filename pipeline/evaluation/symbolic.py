"""A judge without eyes and without training: it knows the facts of what was drawn, and weighs what captions claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.evaluation.judges import Spoken

T = TypeVar("T")
STEP = 2.0**-12  # weights are multiples of this, so that their sums are exact and equal ones tie


class Truths(Protocol):
    """Of which of M images the claims of captions are true: those of drawn scenes or films (claims.py)."""

    def of(self, caption: str) -> Mapping[Any, np.ndarray]:
        """Each claim of the caption, and of which images it is true, (M,) bool."""
        ...


def facts_of(prepared: Prepared, facts: Mapping[str, T], rows: np.ndarray) -> list[T]:
    """What is known of the images `rows`. Raises UserError where `facts`, by the images' ids, lacks one."""
    names = prepared.ids.take(rows).to_pylist()
    missing = next((name for name in names if name not in facts), None)
    if missing is not None:
        raise UserError(f"{prepared.folder}: no facts of image {missing}; run the prepare stage again")
    return [facts[name] for name in names]


class SymbolicJudge:
    """Scores a caption on an image by its claims: each adds its weight, or if false subtracts it.

    A weight is how surprising it is that the claim is true: −log of the share of the images `train` of which it is (a
    half is added to their number). `claims` are those of all images of the prepared data set, in order.
    """

    def __init__(self, claims: Truths, train: np.ndarray) -> None:
        self._claims, self._train = claims, train

    def vectors(self, said: Spoken, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The scores (N, M) themselves, and one unit vector (M, M) for each image."""
        images = rows.cpu().numpy()
        scores = {text: self._score(text, images) for text in dict.fromkeys(said.texts)}
        return torch.from_numpy(np.stack([scores[text] for text in said.texts])), torch.eye(len(images))

    def _score(self, text: str, images: np.ndarray) -> np.ndarray:
        score = np.zeros(len(images), np.float32)
        for truth in self._claims.of(text).values():
            score += np.where(truth[images], 1, -1) * self._weight(truth[self._train])
        return score

    @staticmethod
    def _weight(truth: np.ndarray) -> np.float32:
        share = (truth.sum() + 0.5) / (len(truth) + 1)
        return np.float32(np.round(-np.log(share) / STEP) * STEP)
