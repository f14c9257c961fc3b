"""The facts of drawn scenes are possible, varied, and repeatable for a seed."""

import json
from collections import Counter
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_facts import (
    SCENE_FACTS,
    Scene,
    compute_overlap,
    make_generator,
    pick,
    read_facts,
    sample_uniform,
)
from pipeline.worlds.scenes.scene_world import CATEGORIES, CONDITIONS, GRASSY, PALETTE, PATTERNS, SETTINGS, SIZES

SEED, NUMBER = 3, 1200


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [sample_scene(SEED, i) for i in range(NUMBER)]


def test_a_scene_depends_on_seed_and_number_alone(scenes: list[Scene]) -> None:
    assert sample_scene(SEED, 567) == scenes[567]
    assert sample_scene(SEED + 1, 567) != scenes[567]
    assert len({repr(scene) for scene in scenes}) == NUMBER


def test_purposes_have_streams_of_their_own() -> None:
    draws = [make_generator(1, 5, purpose).random(4).tolist() for purpose in (0, 1, 2)] + [
        make_generator(1, 6, 0).random(4).tolist()
    ]
    assert len({tuple(draw) for draw in draws}) == 4
    assert make_generator(1, 5, 0).random(4).tolist() == draws[0]


def test_pick_follows_its_weights() -> None:
    rng = make_generator(0, 0, 0)
    counts = Counter(pick(rng, "abc", (1, 0, 3)) for _ in range(4000))
    assert counts["b"] == 0
    assert counts["c"] / counts["a"] == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize(("low", "high"), [(0.42, 0.48), (-0.012, 0.012), (0.3, 0.3)])
def test_uniform_draws_the_numbers_of_numpy(low: float, high: float) -> None:
    generator, reference = make_generator(1, 5, 0), make_generator(1, 5, 0)
    assert [sample_uniform(generator, low, high) for _ in range(200)] == [
        reference.uniform(low, high) for _ in range(200)
    ]


def test_no_thing_leaves_the_picture(scenes: list[Scene]) -> None:
    for scene in scenes:
        for thing in scene.things:
            assert thing.count == len(thing.boxes)
            for box in (*thing.boxes, thing.box):
                assert 0.01 <= box[0] < box[2] <= 0.99
                assert 0.01 <= box[1] < box[3] <= 0.99


def test_every_thing_is_on_its_ground(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert 1 <= len(scene.things) <= 3
        for thing in scene.things:
            assert thing.category in SETTINGS[scene.setting]
            assert thing.pose != "grazing" or scene.setting in GRASSY
            for *_, foot in thing.boxes:
                if thing.place == "ground":
                    assert foot > scene.shore
                elif thing.place == "water":
                    assert scene.horizon < foot < scene.shore
                else:
                    assert thing.category in ("bird", "kite", "balloon")


def test_things_do_not_hide_each_other(scenes: list[Scene]) -> None:
    for scene in scenes:
        boxes = [(i, box) for i, thing in enumerate(scene.things) for box in thing.boxes]
        for i, a in boxes:
            for j, b in boxes:
                assert i == j or compute_overlap(a, b) < 0.12


def test_the_objects_of_the_first_thing_are_large(scenes: list[Scene]) -> None:
    shares = [sum((b[2] - b[0]) * (b[3] - b[1]) for b in scene.things[0].boxes) for scene in scenes]
    assert sum(shares) / len(shares) > 0.18


def test_the_world_is_varied(scenes: list[Scene]) -> None:
    things = [thing for scene in scenes for thing in scene.things]
    assert {scene.setting for scene in scenes} == set(SETTINGS)
    assert {(scene.weather, scene.light) for scene in scenes} == set(CONDITIONS)
    assert {thing.category for thing in things} == set(CATEGORIES)
    assert {thing.colour for thing in things} == set(PALETTE)
    assert {thing.size for thing in things} == set(SIZES)
    assert {thing.pattern for thing in things} == set(PATTERNS)
    assert {thing.count for thing in things} == {1, 2, 3}
    assert {(thing.category, thing.pose) for thing in things} == {
        (c, p) for c in CATEGORIES for p in CATEGORIES[c].poses
    }
    assert min(Counter(thing.category for thing in things).values()) > 0.01 * len(things)


def test_facts_are_read_from_json_unchanged(scenes: list[Scene]) -> None:
    for scene in scenes[:200]:
        assert Scene.from_record(json.loads(json.dumps({"imgid": 7, **scene.record()}))) == scene


def test_an_image_with_two_lines_of_facts_is_reported(tmp_path: Path) -> None:
    lines = [json.dumps({"imgid": name, **sample_scene(SEED, n).record()}) for n, name in enumerate((1, 2, "1"))]
    (tmp_path / SCENE_FACTS).write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match=r"facts\.jsonl: line 3 repeats image 1; draw the scenes again"):
        read_facts(tmp_path / SCENE_FACTS)


def test_only_line_feeds_end_a_line_of_facts(tmp_path: Path) -> None:
    scene = sample_scene(SEED, 0)
    line = json.dumps({"imgid": "a\u2028b\x85c", **scene.record()}, ensure_ascii=False)
    (tmp_path / SCENE_FACTS).write_text(f"{line}\n", encoding="utf-8")
    assert read_facts(tmp_path / SCENE_FACTS) == {"a\u2028b\x85c": scene}
