"""What a caption claims about a scene, and which relations hold between two things in it."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.scenes.facts import Thing

CONVERSE = {"right_of": "left_of", "behind": "in_front_of", "below": "above"}


class Claim(NamedTuple):
    """One statement; `of` and `to` are indices into `Scene.things`, -1 where the claim is about the scene."""

    what: str
    value: str
    of: int = -1
    to: int = -1


def related(relation: str, a: Thing, b: Thing) -> bool:
    """Whether `relation` holds from `a` to `b`, judged by their boxes; ValueError for an unknown relation."""
    (a0, a1, a2, a3), (b0, b1, b2, b3) = a.box, b.box
    across = min(a2, b2) - max(a0, b0)  # shared width; negative: the gap between them
    along = min(a3, b3) - max(a1, b1)  # shared height; negative: the gap
    narrower = min(a2 - a0, b2 - b0)
    if relation == "left_of":
        return across < 0.02 and a0 < b0
    if relation == "near":
        return max(-across, -along) < 0.25
    if relation == "beside":
        return -0.25 < across < 0.02 and along > 0.25 * min(a3 - a1, b3 - b1)
    if relation == "in_front_of":
        return "air" not in (a.place, b.place) and across > 0.35 * narrower and a3 - b3 > 0.10
    if relation == "above":
        return a.place == "air" and across > 0.25 * narrower and a3 < b1 + 0.02
    if relation in CONVERSE:
        return related(CONVERSE[relation], b, a)
    raise ValueError(f"{relation}: no such relation")
