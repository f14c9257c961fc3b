"""Symbolic judge: it scores a caption's claims against the facts of the drawn images, without pixels or training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.evaluation.judges import JudgedCaptions

T = TypeVar("T")
STEP = 2.0**-12  # weights are multiples of STEP, so that sums are exact and equal sums tie


class ClaimChecker(Protocol):
    """Truth of captions' claims in each of M images, drawn scenes or films (scene_claims.py, film_claims.py)."""

    def of(self, caption: str) -> Mapping[Any, np.ndarray]:
        """Return each claim of the caption with its truth (M,) bool in each image."""
        ...


def require_facts(prepared: Prepared, facts: Mapping[str, T], rows: np.ndarray) -> list[T]:
    """Return the facts of the images `rows`. Raises UserError if `facts`, by image id, lacks one."""
    names = prepared.ids.take(rows).to_pylist()
    missing = next((name for name in names if name not in facts), None)
    if missing is not None:
        raise UserError(f"{prepared.folder}: no facts of image {missing}; run the prepare stage again")
    return [facts[name] for name in names]


class SymbolicJudge:
    """Judge that scores a caption on an image by its claims: a true claim adds its weight, a false one subtracts it.

    A claim's weight is −log of the share of the images `train` in which it is true; the count is smoothed by adding a
    half. `claims` covers all images of the prepared data set, in order.
    """

    def __init__(self, claims: ClaimChecker, train: np.ndarray) -> None:
        self._claims, self._train = claims, train

    def embed(self, said: JudgedCaptions, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (N, M) as text embeddings, and one unit vector per image (M, M)."""
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
