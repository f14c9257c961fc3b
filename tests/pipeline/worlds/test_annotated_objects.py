"""Facts of drawn images: the annotations of the object detector, and the numbers of their neighbourhoods."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pipeline.errors import UserError
from pipeline.worlds.annotated_objects import list_annotated_objects
from pipeline.worlds.films.film_facts import FILM_FACTS, ActorView, Film, Track
from pipeline.worlds.neighbourhoods import find_neighbourhood_numbers
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene, Thing

BOXES = ((0.1, 0.2, 0.3, 0.4), (0.5, 0.2, 0.9, 0.4))
DOGS = Thing("dog", "brown", "plain", "small", 2, "running", "ground", "left", BOXES, (0.1, 0.2, 0.9, 0.4))
BALL = Thing("ball", "red", "striped", "large", 1, "lying", "ground", "right", BOXES[:1], BOXES[0])


def make_scene(things=(), light="day", neighbourhood=-1) -> Scene:
    return Scene("park", "sunny", light, 0.45, 0.45, {}, tuple(things), neighbourhood)


def write_facts(folder, scenes: list[Scene]) -> None:
    lines = [json.dumps({"imgid": number, **each.record()}) for number, each in enumerate(scenes)]
    (folder / SCENE_FACTS).write_text("\n".join(lines) + "\n")


def make_prepared(folder, *ids: int) -> SimpleNamespace:
    return SimpleNamespace(folder=folder, ids=pa.array([str(number) for number in ids]))


def test_each_object_has_the_labels_of_its_thing_in_the_order_of_the_prepared_images(tmp_path):
    write_facts(tmp_path, [make_scene([DOGS, BALL]), make_scene(light="night")])
    empty, full = list_annotated_objects(make_prepared(tmp_path, 1, 0))
    assert empty == (("setting park", "air night"), ())
    assert full.scene == ("setting park", "air sunny")
    dog = ("category dog", "colour brown", "pose running", "pattern plain", "size small", "count 2")
    ball = ("category ball", "colour red", "pose lying", "pattern striped", "size large", "count 1")
    assert full.objects == ((BOXES[0], dog), (BOXES[1], dog), (BOXES[0], ball))


def test_images_that_were_not_drawn_are_refused(tmp_path):
    with pytest.raises(UserError, match="object_detector is trained on the facts of drawn scenes or films; choose"):
        list_annotated_objects(make_prepared(tmp_path, 0))


def test_neighbourhood_numbers_are_in_the_order_of_the_images_and_none_if_an_image_has_no_number(tmp_path):
    assert find_neighbourhood_numbers(make_prepared(tmp_path, 0)) is None  # no file of facts
    write_facts(tmp_path, [make_scene(neighbourhood=3), make_scene(neighbourhood=4), make_scene()])
    assert find_neighbourhood_numbers(make_prepared(tmp_path, 1, 0)).tolist() == [4, 3]
    for ids in ((0, 2), (0, 7)):  # image 2 has no neighbourhood, and image 7 has no facts
        assert find_neighbourhood_numbers(make_prepared(tmp_path, *ids)) is None


def test_images_without_facts_are_refused(tmp_path):
    write_facts(tmp_path, [make_scene([DOGS])])
    with pytest.raises(UserError, match="no facts of image 7; run the prepare stage again"):
        list_annotated_objects(make_prepared(tmp_path, 0, 7))
    (tmp_path / FILM_FACTS).write_text("")
    with pytest.raises(UserError, match=f"{FILM_FACTS}: no facts of image 0"):
        list_annotated_objects(make_prepared(tmp_path, 0), frames=2)


def test_frames_of_films_have_their_actors_boxes_and_thirds(tmp_path):
    dog = Thing("dog", "brown", "plain", "small", 1, "standing", "ground", "left")
    film = Film(make_scene([dog], neighbourhood=7), "solo", "", (Track(0.5, 0.9, 0.4, True),), ((),))
    views = [ActorView(1, 0, "running", "right", BOXES[0]), ActorView(3, 0, "sitting", "right", BOXES[1])]
    record = {"imgid": 5, "frames": 4, **film.record(views)}
    (tmp_path / FILM_FACTS).write_text(json.dumps(record) + "\n")
    first, second = list_annotated_objects(make_prepared(tmp_path, 5), frames=2)  # the frames 1 and 3 of 4
    attributes = ("category dog", "colour brown", "pattern plain", "size small")
    place = ("setting park", "air sunny")
    assert first == ((*place, "dog left"), ((BOXES[0], (*attributes, "pose running", "facing right")),))
    assert second == ((*place, "dog right"), ((BOXES[1], (*attributes, "pose sitting", "facing right")),))
    # the middle frame, number 2, has no visible actor
    (third,) = list_annotated_objects(make_prepared(tmp_path, 5), frames=1)
    assert third == (place, ())
    assert find_neighbourhood_numbers(make_prepared(tmp_path, 5)).tolist() == [7]
    record["boxes"] += [{**record["boxes"][0], "box": BOXES[1]}]  # the views need not be in the order of the frames
    (tmp_path / FILM_FACTS).write_text(json.dumps(record) + "\n")
    first, _ = list_annotated_objects(make_prepared(tmp_path, 5), frames=2)
    assert [box for box, _ in first.objects] == [BOXES[0], BOXES[1]]
