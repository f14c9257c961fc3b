"""Baseline captions, which are evaluated in addition to a method's captions.

`BASELINES` lists the kinds of the core for `evaluate.baselines` of params.yaml; slices add further kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.metrics.retrieval import draw_distractors

BaselineCaptioner = Callable[[np.ndarray, Sequence[str]], list[str]]
"""Function of images (M,), rows of the prepared data, and the speaker's captions; returns one caption per image."""

SEED = 0  # seed for drawing the other images


@dataclass(frozen=True)
class BaselineKind:
    """Kind of baseline: its name in `evaluate.baselines`, and its constructor.

    `needs_facts`: the baseline exists for drawn scenes only.
    """

    name: str
    build: Callable[[PreparedData, FeatureStore], BaselineCaptioner]
    needs_facts: bool = False


def build_random_captioner(prepared: PreparedData, store: FeatureStore) -> BaselineCaptioner:
    """Build a captioner that gives each image the first human caption of another, randomly drawn image.

    The captioner raises UserError for fewer than two images.
    """

    def choose_captions(rows: np.ndarray, speaker_captions: Sequence[str]) -> list[str]:
        other_images = draw_distractors(len(rows), 1, SEED)[:, 0].numpy()
        return [" ".join(prepared.words(row)[0]) for row in rows[other_images]]

    return choose_captions


BASELINES = (BaselineKind("random", build_random_captioner),)
