"""Baseline captions that train at most a linear probe: a lower bound for methods, and an oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.evaluation.symbolic import require_facts
from pipeline.metrics.retrieval import random_distractors
from pipeline.worlds.scenes.parser import parse_scene_caption
from pipeline.worlds.scenes.scene_captions import describe_scene
from pipeline.worlds.scenes.scene_facts import Scene
from pipeline.worlds.scenes.scene_words import PLACES, WEATHER

BaselineCaptioner = Callable[[np.ndarray, Sequence[str]], list[str]]
"""Function of images (M,), rows of the prepared data, and the speaker's captions; returns one caption per image."""

RIDGE = 100.0  # ridge penalty of the linear probe, for features of variance 1
UNUSUAL = (("rainy", "day"), ("clear", "sunset"), ("clear", "night"))  # the conditions that annotators mention
SENTENCES, ANNOTATOR = 20, 2**40  # captions per image, and an annotator seed that no caption of the data set uses
OTHERS = 0  # the seed of the choice of other images


def template_captions(prepared: Prepared, store: FeatureStore, facts: Mapping[str, Scene]) -> BaselineCaptioner:
    """Return a captioner that appends the place and any night, sunset or rain that the speaker's caption lacks.

    Ridge regression predicts both from the images' pooled features. It is fitted to the facts of the training split.
    """

    def captions(rows: np.ndarray, said: Sequence[str]) -> list[str]:
        train = prepared.rows("train")
        scenes = require_facts(prepared, facts, train)
        known, wanted = store.pooled(train), store.pooled(rows)
        places = ridge_probe(known, [scene.setting for scene in scenes], wanted)
        weather = ridge_probe(known, [f"{scene.weather} {scene.light}" for scene in scenes], wanted)
        return [_named(*each) for each in zip(said, places, weather, strict=True)]

    return captions


def _named(caption: str, place: str, weather: str) -> str:
    kinds = {said.kind for said in parse_scene_caption(caption).scene}
    sky, light = weather.split()
    where = [] if "setting" in kinds else [PLACES[place][0].text]
    when = [WEATHER[sky, light][0]] if (sky, light) in UNUSUAL and "weather" not in kinds else []
    return " ".join([caption, *where, *when])


def ridge_probe(known: np.ndarray, labels: Sequence[str], wanted: np.ndarray) -> list[str]:
    """Predict a label for each row of `wanted` (M, P) by ridge regression on `known` (N, P) and its `labels`.

    Features are standardised with the statistics of `known`.
    """
    kinds, which = np.unique(np.array(labels), return_inverse=True)
    mean, deviation = known.mean(0), known.std(0) + 1e-6

    def inputs(features: np.ndarray) -> np.ndarray:
        return np.pad((features - mean) / deviation, ((0, 0), (0, 1)), constant_values=1.0).astype(np.float64)

    x, y = inputs(known), np.eye(len(kinds))[which]
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    return kinds[(inputs(wanted) @ weights).argmax(1)].tolist()


def oracle_captions(prepared: Prepared, facts: Mapping[str, Scene]) -> BaselineCaptioner:
    """Return a captioner that picks, of sampled true sentences about an image's facts, the one with the most claims."""

    def captions(rows: np.ndarray, said: Sequence[str]) -> list[str]:
        written = (
            describe_scene(scene, ANNOTATOR, row, SENTENCES)
            for scene, row in zip(require_facts(prepared, facts, rows), rows.tolist(), strict=True)
        )
        return [" ".join(max(some, key=lambda caption: len(caption.claims)).tokens) for some in written]

    return captions


def random_captions(prepared: Prepared) -> BaselineCaptioner:
    """Return a captioner that gives each image the first human caption of another, randomly drawn image."""

    def captions(rows: np.ndarray, said: Sequence[str]) -> list[str]:
        others = random_distractors(len(rows), 1, OTHERS)[:, 0].numpy()
        return [" ".join(prepared.words(row)[0]) for row in rows[others]]

    return captions
