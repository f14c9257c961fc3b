"""Captions for which nothing is trained but a linear read-out: what a method has to beat, and what none can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared
from pipeline.evaluation.symbolic import facts_of
from pipeline.metrics.retrieval import random_distractors
from pipeline.scenes.captions import describe
from pipeline.scenes.facts import Scene
from pipeline.scenes.parser import parse
from pipeline.scenes.words import PLACES, WEATHER

Baseline = Callable[[np.ndarray, Sequence[str]], list[str]]
"""From images (M,), rows of the prepared data set, and what a speaker says of them to captions of the same images."""

RIDGE = 100.0  # of the read-out, for features of variance 1
UNUSUAL = (("rainy", "day"), ("clear", "sunset"), ("clear", "night"))  # what people mention
SENTENCES, ANNOTATOR = 20, 2**40  # drawn for each image, and the seed of who writes them: nobody's in the data set
OTHERS = 0  # the seed of which other image


def template(prepared: Prepared, store: FeatureStore, facts: Mapping[str, Scene]) -> Baseline:
    """The speaker's captions with the place appended, and night, sunset or rain, where they do not name them.

    Both are read from the images' pooled features, by ridge regression on the facts of the training split.
    """

    def captions(rows: np.ndarray, said: Sequence[str]) -> list[str]:
        train = prepared.rows("train")
        scenes = facts_of(prepared, facts, train)
        known, wanted = store.pooled(train), store.pooled(rows)
        places = read_out(known, [scene.setting for scene in scenes], wanted)
        weather = read_out(known, [f"{scene.weather} {scene.light}" for scene in scenes], wanted)
        return [_named(*each) for each in zip(said, places, weather, strict=True)]

    return captions


def _named(caption: str, place: str, weather: str) -> str:
    kinds = {said.kind for said in parse(caption).scene}
    sky, light = weather.split()
    where = [] if "setting" in kinds else [PLACES[place][0].text]
    when = [WEATHER[sky, light][0]] if (sky, light) in UNUSUAL and "weather" not in kinds else []
    return " ".join([caption, *where, *when])


def read_out(known: np.ndarray, labels: Sequence[str], wanted: np.ndarray) -> list[str]:
    """The label of each of `wanted` (M, P), by ridge regression on those of `known` (N, P), standardised."""
    kinds, which = np.unique(np.array(labels), return_inverse=True)
    mean, deviation = known.mean(0), known.std(0) + 1e-6

    def inputs(features: np.ndarray) -> np.ndarray:
        return np.pad((features - mean) / deviation, ((0, 0), (0, 1)), constant_values=1.0).astype(np.float64)

    x, y = inputs(known), np.eye(len(kinds))[which]
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    return kinds[(inputs(wanted) @ weights).argmax(1)].tolist()


def oracle(prepared: Prepared, facts: Mapping[str, Scene]) -> Baseline:
    """Of some true sentences about the facts of each image, the one with the most claims: no image is looked at."""

    def captions(rows: np.ndarray, said: Sequence[str]) -> list[str]:
        written = (
            describe(scene, ANNOTATOR, row, SENTENCES)
            for scene, row in zip(facts_of(prepared, facts, rows), rows.tolist(), strict=True)
        )
        return [" ".join(max(some, key=lambda caption: len(caption.claims)).tokens) for some in written]

    return captions


def random(prepared: Prepared) -> Baseline:
    """People's first captions of other images, drawn at random."""

    def captions(rows: np.ndarray, said: Sequence[str]) -> list[str]:
        others = random_distractors(len(rows), 1, OTHERS)[:, 0].numpy()
        return [" ".join(prepared.words(row)[0]) for row in rows[others]]

    return captions
