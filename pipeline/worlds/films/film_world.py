"""Possible events in films: the gaits and acts of each category, and the order of events."""

from __future__ import annotations

from pipeline.worlds.scenes.scene_world import CATEGORIES, GRASSY

SIDES = ("left", "right")
OPPOSITE = {"left": "right", "right": "left"}

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
ACTS: dict[str, tuple[str, ...]] = {  # acts of each category; they keep the actor's x
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
SOLO_CATEGORIES = frozenset(("ball", "balloon", "boat"))  # categories without joint stories
FINAL_POSES = {"sit": "sitting", "sleep": "sleeping", "graze": "grazing"}  # poses that remain after an act
REST_POSES = {
    "car": "parked",
    "bus": "parked",
    "truck": "parked",
    "boat": "sailing",
    "ball": "lying",
    "balloon": "flying",
}
GAIT_POSES: dict[str, tuple[str, ...]] = {  # alternating poses of each gait; a category may lack some
    "walk": ("walking", "standing"),
    "run": ("running", "standing"),
    "fly": ("flying",),
    "drive": ("driving",),
    "sail": ("sailing",),
    "roll": ("lying",),
    "float": ("flying",),
}
EVENT_LENGTHS = {"cross": 1.0, "enter": 0.6, "return": 0.7, "leave": 0.6, "stop": 0.3, "turn": 0.3}  # relative lengths
ACT_LENGTH = 0.45  # relative length of all other acts
RUN_FACTOR = 0.75  # factor of a length for the gait run

Plan = tuple[str, ...]
"""Events of one actor, in order; their sides are a separate fact."""


def list_acts(category: str, setting: str) -> tuple[str, ...]:
    """Return the acts of the category in this setting."""
    return tuple(act for act in ACTS[category] if act != "graze" or setting in GRASSY)


def list_outside_plans(category: str, setting: str) -> tuple[Plan, ...]:
    """Return the plans of an actor that is outside the image when the film begins."""
    possible = list_acts(category, setting)
    last = [act for act in possible if act != "stop"]  # after "enter" an actor stands still anyway
    before_exit = [act for act in possible if act not in ("turn", "sleep")]
    plans = [("enter",), ("cross",), ("enter", "return"), *(("enter", act) for act in last)]
    plans += [("enter", act, "leave") for act in before_exit]
    plans += [("enter", act, "return") for act in before_exit]
    return tuple(plans)


def list_inside_plans(category: str, setting: str) -> tuple[Plan, ...]:
    """Return the plans of an actor that is inside the image from the beginning."""
    possible = [act for act in list_acts(category, setting) if act != "stop"]
    first = [act for act in possible if act != "sleep"]
    plans: list[Plan] = [("leave",), *((act,) for act in possible)]
    plans += [(a, b) for a in first for b in possible if a != b]
    plans += [(act, "leave") for act in first if act != "turn"]
    return tuple(plans)


def choose_rest_pose(category: str) -> str:
    """Return the pose of an actor that does nothing."""
    return REST_POSES.get(category, "standing")


def list_poses(category: str, gait: str) -> tuple[str, ...]:
    """Return the poses that alternate while the actor moves."""
    moving_poses = tuple(pose for pose in GAIT_POSES[gait] if pose in CATEGORIES[category].poses)
    return moving_poses or (choose_rest_pose(category),)
