"""Baseline captions of drawn scenes: a template with a linear probe, and an oracle.

A method should score above the template. The oracle samples captions from the facts.
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
SENTENCES, ANNOTATOR = 20, 2**40  # sampled captions per image, and their seed, which no data set should have


def build_template_captioner(prepared: PreparedData, store: FeatureStore) -> BaselineCaptioner:
    """Return a captioner that appends the place and the unusual weather where the speaker's caption lacks them.

    Ridge regression predicts place and weather from the images' pooled features. It is fitted to the facts of the
    training split. Weather is unusual at night, at sunset and in rain. The captioner raises UserError for a training
    image without facts.
    """
    facts = read_known_scenes(prepared)

    def append_predictions(rows: np.ndarray, speaker_captions: Sequence[str]) -> list[str]:
        train = prepared.rows("train")
        scenes = require_facts(prepared, facts, train)
        train_features, features = store.pooled(train), store.pooled(rows)
        places = predict_by_ridge(train_features, [scene.setting for scene in scenes], features)
        weather = predict_by_ridge(train_features, [f"{scene.weather} {scene.light}" for scene in scenes], features)
        return [_append_surroundings(*texts) for texts in zip(speaker_captions, places, weather, strict=True)]

    return append_predictions


def _append_surroundings(caption: str, place: str, weather: str) -> str:
    kinds = {claim.kind for claim in parse_scene_caption(caption).scene}
    sky, light = weather.split()
    place_words = [] if "setting" in kinds else [PLACES[place][0].text]
    weather_words = [WEATHER[sky, light][0]] if (sky, light) in UNUSUAL and "weather" not in kinds else []
    return " ".join(filter(None, [caption, *place_words, *weather_words]))


def predict_by_ridge(train_features: np.ndarray, labels: Sequence[str], features: np.ndarray) -> list[str]:
    """Predict a label for each row of `features` (M, P) by ridge regression on `train_features` (N, P) and `labels`.

    Features are standardised with the statistics of `train_features`.
    """
    classes, class_indices = np.unique(np.array(labels), return_inverse=True)
    mean, deviation = train_features.mean(0), train_features.std(0) + 1e-6

    def make_inputs(values: np.ndarray) -> np.ndarray:
        return np.pad((values - mean) / deviation, ((0, 0), (0, 1)), constant_values=1.0).astype(np.float64)

    x, y = make_inputs(train_features), np.eye(len(classes))[class_indices]
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    return classes[(make_inputs(features) @ weights).argmax(1)].tolist()


def build_oracle_captioner(prepared: PreparedData, store: FeatureStore) -> BaselineCaptioner:
    """Return a captioner that samples true sentences about an image and returns the sentence with the most claims.

    The captioner raises UserError for an image without facts.
    """
    facts = read_known_scenes(prepared)

    def sample_captions(rows: np.ndarray, speaker_captions: Sequence[str]) -> list[str]:
        scenes = require_facts(prepared, facts, rows)
        return [sample_oracle_caption(scene, row) for scene, row in zip(scenes, rows.tolist(), strict=True)]

    return sample_captions


def sample_oracle_caption(scene: Scene, row: int) -> str:
    """Sample true sentences about `scene`, image `row`, and return the sentence with the most claims."""
    captions = describe_scene(scene, ANNOTATOR, row, SENTENCES)
    return " ".join(max(captions, key=lambda caption: len(caption.claims)).tokens)


TEMPLATE = BaselineKind("template", build_template_captioner, needs_facts=True)
ORACLE = BaselineKind("oracle", build_oracle_captioner, needs_facts=True)
