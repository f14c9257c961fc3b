"""Possible events in films: the gaits and acts of each category, and the order of events."""

from __future__ import annotations

from pipeline.worlds.scenes.scene_world import CATEGORIES, GRASSY

SIDES = ("left", "right")
OTHER = {"left": "right", "right": "left"}

_PEOPLE = ("man", "woman", "boy", "girl")
GAITS: dict[str, tuple[str, ...]] = {  # gaits of each category
    **dict.fromkeys((*_PEOPLE, "dog", "horse"), ("walk", "run")),
    **dict.fromkeys(("cat", "cow", "sheep"), ("walk",)),
    **dict.fromkeys(("car", "bus", "truck"), ("drive",)),
    "bird": ("fly",),
    "boat": ("sail",),
    "ball": ("roll",),
    "balloon": ("float",),
}
ACTS: dict[str, tuple[str, ...]] = {  # acts of each category, which keep its place
    **dict.fromkeys(_PEOPLE, ("jump", "wave", "turn")),
    **dict.fromkeys(("car", "bus", "truck", "boat"), ("stop", "turn")),
    "dog": ("jump", "sit", "turn"),
    "cat": ("jump", "sit", "sleep", "turn"),
    "horse": ("jump", "graze", "turn"),
    "cow": ("graze", "turn"),
    "sheep": ("jump", "graze", "turn"),
    "bird": ("jump", "turn"),
    "ball": ("jump",),
    "balloon": ("rise", "sink"),
}
ALONE = frozenset(("ball", "balloon", "boat"))  # categories that do not meet, follow or pass others
POSED = {"sit": "sitting", "sleep": "sleeping", "graze": "grazing"}  # acts whose pose remains afterwards
RESTING = {"car": "parked", "bus": "parked", "truck": "parked", "boat": "sailing", "ball": "lying", "balloon": "flying"}
MOVING: dict[str, tuple[str, ...]] = {  # by gait: alternating poses, of which a category uses those that it has
    "walk": ("walking", "standing"),
    "run": ("running", "standing"),
    "fly": ("flying",),
    "drive": ("driving",),
    "sail": ("sailing",),
    "roll": ("lying",),
    "float": ("flying",),
}
LENGTH = {"cross": 1.0, "enter": 0.6, "return": 0.7, "leave": 0.6, "stop": 0.3, "turn": 0.3}  # relative lengths
ACT, RUN = 0.45, 0.75  # length of other acts, and the factor for running

Plan = tuple[str, ...]
"""Events of one actor, in order; their sides are a separate fact."""


def acts(category: str, setting: str) -> tuple[str, ...]:
    """Return the acts of the category in this setting."""
    return tuple(act for act in ACTS[category] if act != "graze" or setting in GRASSY)


def outside_plans(category: str, setting: str) -> tuple[Plan, ...]:
    """Return the plans of an actor that is outside the image when the film begins."""
    here = acts(category, setting)
    staying = [act for act in here if act != "stop"]  # an actor that enters and does nothing has stopped
    then = [act for act in here if act not in ("turn", "sleep")]
    plans = [("enter",), ("cross",), ("enter", "return"), *(("enter", act) for act in staying)]
    plans += [("enter", act, "leave") for act in then]
    plans += [("enter", act, "return") for act in then]
    return tuple(plans)


def inside_plans(category: str, setting: str) -> tuple[Plan, ...]:
    """Return the plans of an actor that is inside the image from the beginning."""
    here = [act for act in acts(category, setting) if act != "stop"]
    first = [act for act in here if act != "sleep"]
    plans: list[Plan] = [("leave",), *((act,) for act in here)]
    plans += [(a, b) for a in first for b in here if a != b and (a, b) != ("graze", "sit")]
    plans += [(act, "leave") for act in first if act != "turn"]
    return tuple(plans)


def rest(category: str) -> str:
    """Return the pose of an actor that does nothing."""
    return RESTING.get(category, "standing")


def poses(category: str, gait: str) -> tuple[str, ...]:
    """Return the poses that alternate while the actor moves."""
    known = tuple(pose for pose in MOVING[gait] if pose in CATEGORIES[category].poses)
    return known or (rest(category),)
