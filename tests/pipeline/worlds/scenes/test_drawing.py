"""Drawings agree with the facts of their scenes, and fill the boxes of the facts."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pipeline.worlds.scenes.drawing.draw_scene import draw_object, draw_scene
from pipeline.worlds.scenes.drawing.pen import PAD, interpolate_spline, mix
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_facts import Scene, Thing, make_generator
from pipeline.worlds.scenes.scene_world import CATEGORIES, PALETTE

POSES = [(category, pose) for category in CATEGORIES for pose in CATEGORIES[category].poses]
BOX = (0.3, 0.5, 0.7, 0.9)


def make_thing(category: str, pose: str, colour: str = "red", pattern: str = "plain", facing: str = "right") -> Thing:
    return Thing(category, colour, pattern, "medium", 1, pose, "ground", facing, (BOX,), BOX)


@pytest.mark.parametrize(("category", "pose"), POSES)
def test_a_drawing_fills_its_box_and_no_more(category: str, pose: str) -> None:
    for number in range(4):
        layer = draw_object(make_thing(category, pose), 160, "sunny", make_generator(1, number, 0))
        left, top, right, bottom = layer.getchannel("A").getbbox()
        assert min(left, top, layer.width - right, layer.height - bottom) >= PAD - 2
        assert right - left > 0.8 * (layer.width - 2 * PAD)
        assert bottom - top > 0.8 * (layer.height - 2 * PAD)


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_drawing_has_the_colour_of_the_facts(category: str) -> None:
    pose = next(iter(CATEGORIES[category].poses))
    for colour in CATEGORIES[category].colours:
        layer = draw_object(make_thing(category, pose, colour), 160, "sunny", make_generator(1, 0, 0))
        pixels = np.asarray(layer).reshape(-1, 4)
        opaque = pixels[pixels[:, 3] == 255, :3].astype(float)
        distance = np.stack([np.abs(opaque - np.array(PALETTE[name])).sum(1) for name in PALETTE])
        share = (distance.argmin(0) == list(PALETTE).index(colour)).mean()
        assert share > 0.2, colour


def test_patterns_change_the_drawing_but_not_its_outline() -> None:
    plain, striped, spotted = (
        draw_object(make_thing("tent", "standing", pattern=pattern), 160, "sunny", make_generator(1, 0, 0))
        for pattern in ("plain", "striped", "spotted")
    )
    assert plain.getchannel("A").tobytes() == striped.getchannel("A").tobytes() == spotted.getchannel("A").tobytes()
    for other in (striped, spotted):
        share = (np.asarray(plain) != np.asarray(other)).any(-1).mean()
        assert 0.05 < share < 0.4
    assert striped.tobytes() != spotted.tobytes()


def test_a_drawing_that_faces_left_is_a_mirror_image() -> None:
    right = draw_object(make_thing("dog", "running"), 160, "sunny", make_generator(1, 0, 0))
    left = draw_object(make_thing("dog", "running", facing="left"), 160, "sunny", make_generator(1, 0, 0))
    assert left.transpose(Image.Transpose.FLIP_LEFT_RIGHT).tobytes() == right.tobytes()


@pytest.mark.parametrize("category", ["dog", "tent", "car", "ball"])
@pytest.mark.parametrize(("colour", "setting", "light"), [("black", "street", "night"), ("white", "snow", "day")])
def test_dark_things_at_night_and_white_things_on_snow_are_visible(
    category: str, colour: str, setting: str, light: str
) -> None:
    pose = next(iter(CATEGORIES[category].poses))
    weather = "clear" if light == "night" else "sunny"
    empty = Scene(setting, weather, light, 0.45, 0.45, {}, ())
    full = replace(empty, things=(make_thing(category, pose, colour),))
    empty_pixels, full_pixels = (np.asarray(draw_scene(scene, 1, 1, 128)).astype(float) for scene in (empty, full))
    inside = np.abs(full_pixels - empty_pixels)[70:112, 42:86].mean(-1)
    assert np.quantile(inside, 0.95) > 20  # 5 % of the pixels, such as an outline, differ visibly from the background


@pytest.mark.parametrize("size", [64, 128, 100])
def test_pictures_have_the_requested_size_and_are_repeatable(size: int) -> None:
    scene = sample_scene(1, 3)
    picture = draw_scene(scene, 1, 3, size)
    assert (picture.size, picture.mode) == ((size, size), "RGB")
    assert picture.tobytes() == draw_scene(scene, 1, 3, size).tobytes()
    assert picture.tobytes() != draw_scene(scene, 1, 4, size).tobytes()


def test_colours_are_mixed_and_a_spline_passes_through_its_knots() -> None:
    assert mix((0, 100, 200), (100, 100, 100), 0.25) == (25, 100, 175)
    knots = ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0))
    curve = interpolate_spline(knots, closed=True)
    assert len(curve) == 24
    assert set(knots) <= set(curve)
    assert interpolate_spline(knots, closed=False)[0] == knots[0]
    assert interpolate_spline(knots, closed=False)[-1] == knots[-1]
