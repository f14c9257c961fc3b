"""Captions without training: what is appended, what is read from features, and that an oracle tells the truth."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from pipeline.evaluation.untrained_captions import oracle_captions, random_captions, ridge_probe, template_captions
from pipeline.worlds.scenes.faithfulness import faithfulness
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import describe_scene
from pipeline.worlds.scenes.scene_world import CONDITIONS, SETTINGS

TRAIN, TEST = 150, 20
SCENES = [sample_scene(5, 8 * n) for n in range(TRAIN + TEST)]
FACTS = {str(n): scene for n, scene in enumerate(SCENES)}
ROWS = np.arange(TRAIN, TRAIN + TEST)
PREPARED = SimpleNamespace(
    ids=pa.array(list(FACTS)),
    rows=lambda split: {"train": np.arange(TRAIN), "test": ROWS}[split],
    words=lambda row: [["caption", "of", str(row)], ["another"]],
)


@pytest.fixture
def store():
    """Features that hold place and light, and noise."""
    noise = np.random.default_rng(0).normal(size=(len(SCENES), 4))
    place = np.array([[scene.setting == setting for setting in SETTINGS] for scene in SCENES])
    light = np.array([[(scene.weather, scene.light) == condition for condition in CONDITIONS] for scene in SCENES])
    pooled = np.hstack([place + 0.0, light + 0.0, noise]).astype(np.float32)
    return SimpleNamespace(pooled=lambda rows: pooled[rows])


def test_a_line_is_read_from_features_by_hand():
    known = np.array([[0.0], [1.0], [9.0], [10.0]])
    assert ridge_probe(known, ["low", "low", "high", "high"], np.array([[2.0], [4.9], [5.1], [30.0]])) == [
        "low", "low", "high", "high"
    ]  # fmt: skip


def test_the_template_names_place_and_unusual_light_where_the_speaker_does_not(store):
    known = {str(n): FACTS[str(n)] for n in range(TRAIN)}  # no facts of the images that are captioned
    said = template_captions(PREPARED, store, known)(ROWS, ["a dog"] * TEST)
    where = {"beach": "on the beach", "snow": "in the snow", "lake": "by the lake", "street": "on the street"}
    where |= {"park": "in the park", "desert": "in the desert", "farm": "on a farm"}
    when = {"rainy day": "in the rain", "clear sunset": "at sunset", "clear night": "at night"}
    for caption, row in zip(said, ROWS, strict=True):
        scene = SCENES[row]
        sky = when.get(f"{scene.weather} {scene.light}", "")
        assert caption == f"a dog {where[scene.setting]} {sky}".strip()
    assert faithfulness(said, [SCENES[row] for row in ROWS]).summary()["by_kind"]["setting"]["told"] == 1
    assert len(set(said)) > 4
    done = ["a dog in the rain on the beach"] * TEST
    assert template_captions(PREPARED, store, FACTS)(ROWS, done) == done


def test_the_oracle_says_more_than_annotators_and_nothing_false():
    said = oracle_captions(PREPARED, FACTS)(ROWS, [""] * TEST)
    scenes = [SCENES[row] for row in ROWS]
    found = faithfulness(said, scenes).summary()
    people = faithfulness([describe_scene(s, 5, r)[0].raw for s, r in zip(scenes, ROWS.tolist(), strict=True)], scenes)
    assert found["precision"] == 1
    assert found["told"] > 1.3 * people.summary()["told"]
    assert said == oracle_captions(PREPARED, FACTS)(ROWS, ["whatever"] * TEST)
    assert said != [
        max(describe_scene(s, 5, r), key=lambda c: len(c.claims)).raw for s, r in zip(scenes, ROWS, strict=True)
    ]


def test_random_captions_are_those_of_other_images():
    said = random_captions(PREPARED)(ROWS, [""] * TEST)
    of = [int(caption.removeprefix("caption of ")) for caption in said]
    assert set(of) <= set(ROWS.tolist())
    assert all(other != row for other, row in zip(of, ROWS, strict=True))
    assert len(set(of)) > 5
