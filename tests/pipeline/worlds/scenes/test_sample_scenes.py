"""Neighbourhoods: the facts that their scenes share, and the number of facts in which the scenes differ."""

from collections import Counter
from itertools import combinations

import pytest

from pipeline.worlds.scenes.sample_scenes import sample_scene, sample_scene_neighbourhood
from pipeline.worlds.scenes.scene_facts import Scene, Thing, name_atmosphere, relation_holds
from pipeline.worlds.scenes.scene_world import NEIGHBOURS

ATTRIBUTES = ("colour", "count", "pose", "pattern", "size")
RELATIONS = ("left_of", "right_of", "in_front_of", "behind", "above", "below")


@pytest.fixture(scope="module")
def neighbourhoods() -> list[tuple[Scene, ...]]:
    return [sample_scene_neighbourhood(7, n) for n in range(60)]


def index_by_category(scene: Scene) -> dict[str, Thing]:
    return {thing.category: thing for thing in scene.things}


def find_relations(scene: Scene, a: str, b: str) -> set[str]:
    things = index_by_category(scene)
    return {relation for relation in RELATIONS if relation_holds(relation, things[a], things[b])}


def find_differences(a: Scene, b: Scene) -> set[tuple[str, str]]:
    """Return the attributes of things in which two scenes differ, each with the category of the thing."""
    first, second = index_by_category(a), index_by_category(b)
    return {(c, name) for c in first for name in ATTRIBUTES if getattr(first[c], name) != getattr(second[c], name)}


def test_a_neighbourhood_is_eight_scenes_of_one_setting_atmosphere_and_set_of_categories(neighbourhoods) -> None:
    for number, scenes in enumerate(neighbourhoods):
        assert len(scenes) == NEIGHBOURS == 8
        assert {scene.neighbourhood for scene in scenes} == {number}
        assert len({(scene.setting, name_atmosphere(scene)) for scene in scenes}) == 1
        assert len({frozenset(index_by_category(scene)) for scene in scenes}) == 1


def test_two_scenes_of_a_neighbourhood_differ_in_one_or_two_facts(neighbourhoods) -> None:
    variations: Counter[str] = Counter()
    for scenes in neighbourhoods:
        for a, b in combinations(scenes, 2):
            differences = find_differences(a, b)
            names = [name for _, name in differences]
            exchanges = [name for name in ("colour", "pose") if names.count(name) == 2]
            # an exchange between two things is one fact, but changes two attributes
            assert len(differences) <= 2 + len(exchanges)
            if not differences:  # only the positions of things differ
                assert any(
                    find_relations(a, *pair) != find_relations(b, *pair)
                    for pair in combinations(index_by_category(a), 2)
                )
                variations["arrangement"] += 1
            variations.update(names)
    assert {"colour", "count", "pose", "arrangement"} <= set(variations)
    assert "size" not in variations


def test_an_image_is_a_scene_of_its_neighbourhood() -> None:
    assert [sample_scene(7, 24 + k) for k in range(NEIGHBOURS)] == list(sample_scene_neighbourhood(7, 3))
    assert sample_scene_neighbourhood(8, 3) != sample_scene_neighbourhood(7, 3)
