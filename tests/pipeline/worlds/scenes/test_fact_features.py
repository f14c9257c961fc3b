"""Features that are a scene's facts: one indicator for each fact, and the box of each thing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.worlds.scenes.fact_features import (
    COLUMNS,
    REGIONS,
    SIZE,
    THING_FACTS,
    compute_fact_vectors,
    write_fact_features,
)
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene


def test_a_vector_has_the_facts_of_the_scene_or_of_one_thing_and_no_others():
    for index in range(0, 80, 8):
        scene = sample_scene(2, index)
        vectors, facts = compute_fact_vectors(scene), list(COLUMNS)
        assert vectors.shape == (REGIONS, SIZE)
        labels = {facts[i] for i in np.flatnonzero(vectors[0, :-4])}
        atmosphere = scene.weather if scene.light == "day" else scene.light
        scenery = {("scenery", name) for name in scene.scenery}
        assert labels == {("setting", scene.setting), ("atmosphere", atmosphere), *scenery}
        for thing, vector in zip(scene.things, vectors[1:], strict=False):
            labels = {facts[i] for i in np.flatnonzero(vector[:-4])}
            assert labels == {(name, getattr(thing, name)) for name in THING_FACTS}
            np.testing.assert_allclose(vector[-4:], thing.box, rtol=1e-6)
        assert not vectors[1 + len(scene.things) :].any()


class SingleImageData:
    """Prepared data of one image, "0", with the facts of its scene."""

    def __init__(self, folder: Path, scene: Scene | None) -> None:
        self.folder, self.ids = folder, pa.array(["0"])
        if scene is not None:
            (folder / SCENE_FACTS).write_text(json.dumps({"imgid": 0, **scene.record()}))

    def __len__(self) -> int:
        return 1


def write_features(folder: Path, scene: Scene | None) -> None:
    """Write the features of an image with the facts of `scene`."""
    write_fact_features(cast(PreparedData, SingleImageData(folder, scene)), folder / "features")


def test_the_features_are_the_vectors_of_the_facts_and_their_sum(tmp_path):
    scene = sample_scene(2, 0)
    write_features(tmp_path, scene)
    pooled, regions, mask = FeatureStore(tmp_path / "features").read(np.arange(1))
    vectors = compute_fact_vectors(scene)
    np.testing.assert_allclose(regions[0], vectors, rtol=1e-3)  # the store has half precision
    np.testing.assert_allclose(pooled[0], vectors.sum(0), rtol=1e-3)
    assert mask[0].tolist() == [n <= len(scene.things) for n in range(REGIONS)]


def test_photos_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"facts.jsonl: expected facts of drawn scenes, found none; choose another"):
        write_features(tmp_path, None)


def test_facts_with_an_unknown_value_or_too_many_things_are_refused(tmp_path):
    scene = sample_scene(2, 0)
    golden = replace(scene, things=(replace(scene.things[0], colour="gold"),))
    with pytest.raises(UserError, match=r"facts.jsonl: expected facts of drawn scenes, found others .*gold"):
        write_features(tmp_path, golden)
    with pytest.raises(UserError, match="expected facts of drawn scenes, found others"):
        write_features(tmp_path, replace(scene, things=(scene.things[0],) * REGIONS))
