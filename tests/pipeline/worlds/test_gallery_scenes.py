"""Drawn scenes in the report's gallery."""

import numpy as np

from pipeline.worlds.gallery_scenes import GalleryScene
from pipeline.worlds.scenes.drawing.draw_scene import draw_scene
from pipeline.worlds.scenes.sample_scenes import sample_scene


def test_a_scene_is_drawn_with_the_seed_of_its_data_set_and_its_number():
    scene = sample_scene(3, 5)
    pictures = [np.asarray(GalleryScene(scene, "5").draw(seed, 64)) for seed in (3, 4)]
    np.testing.assert_array_equal(pictures[0], np.asarray(draw_scene(scene, 3, 5, 64)))
    assert (pictures[0] != pictures[1]).any()
