"""What can happen in films: who moves how, what each can do, and in which order."""

from __future__ import annotations

from pipeline.scenes.world import CATEGORIES, GRASSY

SIDES = ("left", "right")
OTHER = {"left": "right", "right": "left"}
TRAVELS = ("enter", "cross", "return", "leave")  # what moves an actor across the picture

_PEOPLE = ("man", "woman", "boy", "girl")
GAITS: dict[str, tuple[str, ...]] = {  # how each gets from place to place
    **dict.fromkeys((*_PEOPLE, "dog", "horse"), ("walk", "run")),
    **dict.fromkeys(("cat", "cow", "sheep"), ("walk",)),
    **dict.fromkeys(("car", "bus", "truck"), ("drive",)),
    "bird": ("fly",),
    "boat": ("sail",),
    "ball": ("roll",),
    "balloon": ("float",),
}
ACTS: dict[str, tuple[str, ...]] = {  # what each does where it is
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
ALONE = frozenset(("ball", "balloon", "boat"))  # do not meet, follow or pass others
POSED = {"sit": "sitting", "sleep": "sleeping", "graze": "grazing"}  # an act after which the actor stays so
RESTING = {"car": "parked", "bus": "parked", "truck": "parked", "boat": "sailing", "ball": "lying", "balloon": "flying"}
MOVING: dict[str, tuple[str, ...]] = {  # by gait: poses that alternate, of which a category takes those it has
    "walk": ("walking", "standing"),
    "run": ("running", "standing"),
    "fly": ("flying",),
    "drive": ("driving",),
    "sail": ("sailing",),
    "roll": ("lying",),
    "float": ("flying",),
}
LENGTH = {"cross": 1.0, "enter": 0.6, "return": 0.7, "leave": 0.6, "stop": 0.3, "turn": 0.3}  # relative; of others:
ACT, RUN = 0.45, 0.75  # an act's length, and the factor of whoever runs

Plan = tuple[str, ...]
"""What one actor does, in order; which sides it uses is another fact."""


def acts(category: str, setting: str) -> tuple[str, ...]:
    """What the category can do in this setting."""
    return tuple(act for act in ACTS[category] if act != "graze" or setting in GRASSY)


def outside_plans(category: str, setting: str) -> tuple[Plan, ...]:
    """Plans of an actor that is not in the picture when the film begins."""
    here = acts(category, setting)
    staying = [act for act in here if act != "stop"]  # who enters and does nothing has stopped
    then = [act for act in here if act not in ("turn", "sleep")]
    plans = [("enter",), ("cross",), ("enter", "return"), *(("enter", act) for act in staying)]
    plans += [("enter", act, "leave") for act in then]
    plans += [("enter", act, "return") for act in then]
    return tuple(plans)


def inside_plans(category: str, setting: str) -> tuple[Plan, ...]:
    """Plans of an actor that is there from the beginning."""
    here = [act for act in acts(category, setting) if act != "stop"]
    first = [act for act in here if act != "sleep"]
    plans: list[Plan] = [("leave",), *((act,) for act in here)]
    plans += [(a, b) for a in first for b in here if a != b and (a, b) != ("graze", "sit")]
    plans += [(act, "leave") for act in first if act != "turn"]
    return tuple(plans)


def rest(category: str) -> str:
    """The pose of an actor that does nothing."""
    return RESTING.get(category, "standing")


def poses(category: str, gait: str) -> tuple[str, ...]:
    """The poses that alternate while it moves."""
    known = tuple(pose for pose in MOVING[gait] if pose in CATEGORIES[category].poses)
    return known or (rest(category),)
