"""Claims are judged by the facts."""

import pytest

from pipeline.scenes.claims import Claim, holds, related
from pipeline.scenes.facts import Box, Scene, Thing


def thing(category: str = "dog", place: str = "ground", box: Box = (0.1, 0.5, 0.3, 0.8), count: int = 1) -> Thing:
    return Thing(category, "brown", "spotted", "small", count, "running", place, "left", (box,) * count, box)


SCENE = Scene("farm", "clear", "night", 0.45, 0.45, {"barn": 0.3}, (thing(count=2), thing("bird", "air")))


@pytest.mark.parametrize(
    ("claim", "truth"),
    [
        (Claim("setting", "farm"), True),
        (Claim("setting", "park"), False),
        (Claim("weather", "clear"), True),
        (Claim("weather", "rainy"), False),
        (Claim("light", "night"), True),
        (Claim("light", "day"), False),
        (Claim("scenery", "barn"), True),
        (Claim("scenery", "cactus"), False),
        (Claim("category", "dog", 0), True),
        (Claim("category", "dog", 1), False),
        (Claim("kind", "animal", 1), True),
        (Claim("kind", "vehicle", 1), False),
        (Claim("count", "2", 0), True),
        (Claim("count", "1", 0), False),
        (Claim("at_least", "2", 0), True),
        (Claim("at_least", "3", 0), False),
        (Claim("colour", "brown", 0), True),
        (Claim("colour", "black", 0), False),
        (Claim("pattern", "spotted", 0), True),
        (Claim("pattern", "striped", 0), False),
        (Claim("size", "small", 0), True),
        (Claim("size", "large", 0), False),
        (Claim("pose", "running", 0), True),
        (Claim("pose", "sitting", 0), False),
        (Claim("place", "air", 1), True),
        (Claim("place", "water", 1), False),
    ],
)
def test_a_claim_holds_if_the_facts_say_so(claim: Claim, truth: bool) -> None:
    assert holds(claim, SCENE) is truth


def test_unknown_claims_are_refused() -> None:
    with pytest.raises(ValueError, match="smell"):
        holds(Claim("smell", "good", 0), SCENE)
    with pytest.raises(ValueError, match="inside"):
        holds(Claim("relation", "inside", 0, 1), SCENE)


LEFT = thing(box=(0.05, 0.5, 0.30, 0.80))
RIGHT = thing(box=(0.40, 0.5, 0.70, 0.82))
FAR_RIGHT = thing(box=(0.75, 0.5, 0.95, 0.80))
NEARER = thing(box=(0.45, 0.75, 0.65, 0.97))
KITE = thing("kite", "air", (0.42, 0.05, 0.60, 0.30))


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
def test_relations_are_read_off_the_boxes(relation: str, a: Thing, b: Thing, truth: bool) -> None:
    assert related(relation, a, b) is truth
