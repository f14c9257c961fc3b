"""Relations between things follow from their boxes."""

import pytest

from pipeline.worlds.scenes.scene_facts import Box, Thing, relation_holds


def make_thing(category: str = "dog", place: str = "ground", box: Box = (0.1, 0.5, 0.3, 0.8)) -> Thing:
    return Thing(category, "brown", "spotted", "small", 1, "running", place, "left", (box,), box)


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(ValueError, match="inside"):
        relation_holds("inside", make_thing(), make_thing())


LEFT = make_thing(box=(0.05, 0.5, 0.30, 0.80))
RIGHT = make_thing(box=(0.40, 0.5, 0.70, 0.82))
FAR_RIGHT = make_thing(box=(0.75, 0.5, 0.95, 0.80))
NEARER = make_thing(box=(0.45, 0.75, 0.65, 0.97))
KITE = make_thing("kite", "air", (0.42, 0.05, 0.60, 0.30))


@pytest.mark.parametrize(
    ("relation", "a", "b", "truth"),
    [
        ("left_of", LEFT, RIGHT, True),
        ("left_of", RIGHT, LEFT, False),
        ("left_of", RIGHT, NEARER, False),
        ("right_of", RIGHT, LEFT, True),
        ("right_of", LEFT, RIGHT, False),
        ("beside", LEFT, RIGHT, True),
        ("beside", RIGHT, LEFT, True),
        ("beside", LEFT, FAR_RIGHT, False),
        ("beside", KITE, LEFT, False),
        ("near", LEFT, RIGHT, True),
        ("near", LEFT, FAR_RIGHT, False),
        ("in_front_of", NEARER, RIGHT, True),
        ("in_front_of", RIGHT, NEARER, False),
        ("in_front_of", LEFT, RIGHT, False),
        ("in_front_of", RIGHT, KITE, False),
        ("behind", RIGHT, NEARER, True),
        ("above", KITE, RIGHT, True),
        ("above", KITE, LEFT, False),
        ("above", RIGHT, NEARER, False),
        ("below", RIGHT, KITE, True),
    ],
)
def test_relations_follow_from_the_boxes(relation: str, a: Thing, b: Thing, truth: bool) -> None:
    assert relation_holds(relation, a, b) is truth
