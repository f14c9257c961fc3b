"""Features that are a scene's facts: one indicator for each fact, and the box of each thing."""

from __future__ import annotations

import numpy as np

from pipeline.worlds.scenes.fact_features import COLUMNS, REGIONS, SIZE, THING_FACTS, fact_vectors
from pipeline.worlds.scenes.sample_scenes import sample_scene


def test_a_vector_has_the_facts_of_one_thing_and_no_others():
    for index in range(0, 80, 8):
        scene = sample_scene(2, index)
        vectors, facts = fact_vectors(scene), list(COLUMNS)
        assert vectors.shape == (REGIONS, SIZE)
        named = {facts[i] for i in np.flatnonzero(vectors[0, :-4])}
        assert {value for name, value in named if name == "scenery"} == set(scene.scenery)
        assert ("setting", scene.setting) in named
        for thing, vector in zip(scene.things, vectors[1:], strict=False):
            named = {facts[i] for i in np.flatnonzero(vector[:-4])}
            assert named == {(name, getattr(thing, name)) for name in THING_FACTS}
            np.testing.assert_allclose(vector[-4:], thing.box, rtol=1e-6)
        assert not vectors[1 + len(scene.things) :].any()
