"""Baseline captions of drawn scenes: a template with a linear probe, and an oracle.

A method should score above the template. The oracle knows the facts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.evaluation.baseline_captions import BaselineCaptioner, BaselineKind
from pipeline.worlds.scenes.known_scenes import read_known_scenes, require_facts
from pipeline.worlds.scenes.parser import parse_scene_caption
from pipeline.worlds.scenes.scene_captions import describe_scene
from pipeline.worlds.scenes.scene_facts import Scene
from pipeline.worlds.scenes.scene_words import PLACES, WEATHER

RIDGE = 100.0  # ridge penalty of the linear probe, for features of variance 1
UNUSUAL = (("rainy", "day"), ("clear", "sunset"), ("clear", "night"))  # conditions that annotators mention most often
SENTENCES, ANNOTATOR = 20, 2**40  # sampled captions per image, and their seed; a data set should have another seed


def template_captions(prepared: PreparedData, store: FeatureStore) -> BaselineCaptioner:
    """Return a captioner that appends the place and the unusual weather where the speaker's caption lacks them.

    Ridge regression predicts both from the images' pooled features. It is fitted to the facts of the training split.
    Weather is unusual at night, at sunset and in rain.
    """
    facts = read_known_scenes(prepared)

    def captions(rows: np.ndarray, speaker_captions: Sequence[str]) -> list[str]:
        train = prepared.rows("train")
        scenes = require_facts(prepared, facts, train)
        known, wanted = store.pooled(train), store.pooled(rows)
        places = ridge_probe(known, [scene.setting for scene in scenes], wanted)
        weather = ridge_probe(known, [f"{scene.weather} {scene.light}" for scene in scenes], wanted)
        return [_with_surroundings(*each) for each in zip(speaker_captions, places, weather, strict=True)]

    return captions


def _with_surroundings(caption: str, place: str, weather: str) -> str:
    kinds = {claim.kind for claim in parse_scene_caption(caption).scene}
    sky, light = weather.split()
    where = [] if "setting" in kinds else [PLACES[place][0].text]
    when = [WEATHER[sky, light][0]] if (sky, light) in UNUSUAL and "weather" not in kinds else []
    return " ".join(filter(None, [caption, *where, *when]))


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


def oracle_captions(prepared: PreparedData, store: FeatureStore | None = None) -> BaselineCaptioner:
    """Return a captioner that samples true sentences about an image and picks the one with the most claims."""
    facts = read_known_scenes(prepared)

    def captions(rows: np.ndarray, speaker_captions: Sequence[str]) -> list[str]:
        scenes = require_facts(prepared, facts, rows)
        return [oracle_caption(scene, row) for scene, row in zip(scenes, rows.tolist(), strict=True)]

    return captions


def oracle_caption(scene: Scene, row: int) -> str:
    """Sample true sentences about `scene`, image `row`, and return the one with the most claims."""
    written = describe_scene(scene, ANNOTATOR, row, SENTENCES)
    return " ".join(max(written, key=lambda caption: len(caption.claims)).tokens)


TEMPLATE = BaselineKind("template", template_captions, needs_facts=True)
ORACLE = BaselineKind("oracle", oracle_captions, needs_facts=True)
