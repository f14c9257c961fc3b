"""Oracle features of drawn scenes, as from a feature extractor without errors: indicators of the facts behind captions.

Features of a thing include its bounding box. No feature encodes the horizon, the shore, positions of landmarks, or
boxes of single objects. A comparison with extracted features shows which part of a model's errors the feature extractor
causes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.feature_store import FeatureWriter
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError, summarise_error
from pipeline.worlds.scenes.known_scenes import read_known_scenes, require_facts
from pipeline.worlds.scenes.sample_scenes import THINGS
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene, name_atmosphere
from pipeline.worlds.scenes.scene_words import LANDMARKS
from pipeline.worlds.scenes.scene_world import CATEGORIES, PALETTE, PATTERNS, SETTINGS, SIZES

VALUES: dict[str, Sequence[Any]] = {
    "category": tuple(CATEGORIES),
    "colour": tuple(PALETTE),
    "pattern": PATTERNS,
    "size": tuple(SIZES),
    "count": (1, 2, 3),
    "pose": sorted({pose for category in CATEGORIES.values() for pose in category.poses}),
    "place": ("ground", "water", "air"),
    "facing": ("left", "right"),
    "setting": tuple(SETTINGS),
    "atmosphere": ("sunny", "cloudy", "rainy", "sunset", "night"),
    "scenery": LANDMARKS,
}
COLUMNS = {fact: n for n, fact in enumerate((name, value) for name, values in VALUES.items() for value in values)}
THING_FACTS = ("category", "colour", "pattern", "size", "count", "pose", "place", "facing")
REGIONS, SIZE = 1 + max(THINGS), len(COLUMNS) + 4


def write_fact_features(prepared: PreparedData, out: Path) -> None:
    """Write to `out` a region per scene and a region per thing; the pooled vector is the sum of the scene's regions.

    Raises UserError for images that are not drawn scenes or have no facts. Raises UserError for a damaged file of
    facts, and for facts with unknown values or too many things.
    """
    path, facts = prepared.folder / SCENE_FACTS, read_known_scenes(prepared)
    if not facts:
        raise UserError(
            f"{path}: expected facts of drawn scenes, found none; choose another features.network than facts"
        )
    scenes = require_facts(prepared, facts, np.arange(len(prepared)))
    try:
        regions = np.stack([compute_fact_vectors(scene) for scene in scenes])
    except (KeyError, TypeError, ValueError) as error:  # an unknown value, or more things than regions
        raise UserError(
            f"{path}: expected facts of drawn scenes, found others ({summarise_error(error)}); draw the scenes again"
        ) from None
    with FeatureWriter(out, len(scenes), SIZE, (REGIONS, SIZE)) as store:
        store.write(np.arange(len(scenes)), regions.sum(1), regions, np.array([1 + len(s.things) for s in scenes]))
        store.manifest.update(network="facts")


def compute_fact_vectors(scene: Scene) -> np.ndarray:
    """Return (REGIONS, SIZE) float32: indicators of the scene's facts, then of each thing's facts, with its box.

    Raises KeyError for an unknown value, and ValueError for more than REGIONS − 1 things.
    """
    vectors = np.zeros((REGIONS, SIZE), np.float32)
    facts = [("setting", scene.setting), ("atmosphere", name_atmosphere(scene))]
    facts += [("scenery", name) for name in scene.scenery]
    vectors[0, [COLUMNS[fact] for fact in facts]] = 1
    for vector, thing in zip(vectors[1 : 1 + len(scene.things)], scene.things, strict=True):
        vector[[COLUMNS[name, getattr(thing, name)] for name in THING_FACTS]] = 1
        vector[-4:] = thing.box
    return vectors
