"""Symbolic judge, which scores captions' claims against the facts of drawn images, without pixels or training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from pipeline.data.prepared import PreparedData
from pipeline.evaluation.judges import JudgedCaptions, JudgeKind, JudgeSources
from pipeline.worlds.films.film_claims import FilmClaims
from pipeline.worlds.films.film_facts import FILM_FACTS, read_films
from pipeline.worlds.scenes.known_scenes import read_known_scenes, require_facts
from pipeline.worlds.scenes.scene_claims import SceneClaims

STEP = 2.0**-12  # weights are multiples of STEP, so that sums are exact and equal sums tie


class ClaimChecker(Protocol):
    """Checker of captions' claims against the facts of M drawn scenes or films (scene_claims.py, film_claims.py)."""

    def check(self, caption: str) -> Mapping[Any, np.ndarray]:
        """Return each claim of the caption with its truth (M,) bool in each image."""
        ...


class SymbolicJudge:
    """Judge that scores a caption on an image: each true claim adds its weight, each false claim subtracts its weight.

    A claim's weight is −log of the share of the images `train` in which the claim is true, (count + ½) / (images + 1).
    `claims` covers all images of the prepared data set, in order.
    """

    def __init__(self, claims: ClaimChecker, train: np.ndarray) -> None:
        self._claims, self._train = claims, train

    def embed(self, captions: JudgedCaptions, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (N, M) on the images `rows` as text embeddings, and one unit vector per image (M, M)."""
        images = rows.cpu().numpy()
        scores = {text: self._score(text, images) for text in dict.fromkeys(captions.texts)}
        return torch.from_numpy(np.stack([scores[text] for text in captions.texts])), torch.eye(len(images))

    def _score(self, text: str, images: np.ndarray) -> np.ndarray:
        score = np.zeros(len(images), np.float32)
        for truth in self._claims.check(text).values():
            score += np.where(truth[images], 1, -1) * self._compute_weight(truth[self._train])
        return score

    @staticmethod
    def _compute_weight(truth: np.ndarray) -> np.float32:
        share = (truth.sum() + 0.5) / (len(truth) + 1)
        return np.float32(np.round(-np.log(share) / STEP) * STEP)


def make_claim_checker(prepared: PreparedData) -> ClaimChecker:
    """Return the checker of claims against the facts of all images, drawn films or scenes.

    Raises UserError if an image has no facts, or the file of facts is damaged.
    """
    rows, films = np.arange(len(prepared)), prepared.folder / FILM_FACTS
    if films.exists():
        return FilmClaims([record.film for record in require_facts(prepared, read_films(films), rows)])
    return SceneClaims(require_facts(prepared, read_known_scenes(prepared), rows))


def _build_judge(sources: JudgeSources) -> SymbolicJudge:
    return SymbolicJudge(make_claim_checker(sources.prepared), sources.prepared.rows("train"))


SYMBOLIC = JudgeKind("symbolic", _build_judge, needs_facts=True)
