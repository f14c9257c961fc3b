"""One scene's facts, sampled at random: which things there are, where they are, and which relations hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from pipeline.scenes.world import BY_COUNT, BY_OBJECTS, CATEGORIES, CONDITIONS, GRASSY, SETTINGS, SIZES

Box = tuple[float, float, float, float]
"""Left, top, right, bottom as fractions of the picture, y downwards."""
T = TypeVar("T")
FACTS = "facts.jsonl"  # the file that holds them, one line per scene
CONVERSE = {"right_of": "left_of", "behind": "in_front_of", "below": "above"}  # relation of b to a
DIGITS = 4  # decimals of coordinates, so that the file has exactly what was drawn


@dataclass(frozen=True)
class Thing:
    """One to three objects of one category that look alike."""

    category: str
    colour: str  # of a person: of the clothes
    pattern: str
    size: str
    count: int
    pose: str
    place: str  # ground, water or air
    facing: str  # left or right
    boxes: tuple[Box, ...] = ()  # of each object; no part of it is drawn outside
    box: Box = (0.0, 0.0, 0.0, 0.0)  # around all of them


@dataclass(frozen=True)
class Scene:
    """All facts that captions are judged by; the first thing is the most salient."""

    setting: str
    weather: str  # sunny, cloudy, rainy or clear
    light: str  # day, sunset or night
    horizon: float  # as a fraction of the picture, y downwards
    shore: float  # where the ground begins; equal to the horizon where there is no water
    scenery: dict[str, float]  # landmarks in the background, and their x
    things: tuple[Thing, ...]

    def record(self) -> dict[str, Any]:
        """The facts as JSON can hold them, in fractions of the picture."""
        facts = asdict(self)
        facts["objects"] = facts.pop("things")
        return facts

    @classmethod
    def of(cls, record: dict[str, Any]) -> Scene:
        """The scene whose `record` this is; other keys are ignored."""
        known = {f.name: record[f.name] for f in fields(cls) if f.name != "things"}
        things = tuple(
            Thing(**{**thing, "boxes": tuple(map(tuple, thing["boxes"])), "box": tuple(thing["box"])})
            for thing in record["objects"]
        )
        return cls(**known, things=things)


def atmosphere(scene: Scene) -> str:
    """What decides all colours: sunny, cloudy, rainy, sunset or night."""
    return scene.weather if scene.light == "day" else scene.light


def stream(seed: int, index: int, what: int) -> np.random.Generator:
    """Random numbers of one image for one purpose: they depend on the three arguments alone."""
    return np.random.Generator(np.random.Philox(key=[seed, index], counter=[0, 0, 0, what]))


def pick(rng: np.random.Generator, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
    """One of `options`, uniformly or by `weights`, which need not sum to one."""
    if weights is None:
        return options[int(rng.random() * len(options))]
    level = rng.random() * sum(weights)
    for option, weight in zip(options, weights, strict=True):
        level -= weight
        if level < 0:
            return option
    return options[-1]


def sample_scene(seed: int, index: int) -> Scene:
    """The facts of image `index` of the world with this seed."""
    rng = stream(seed, index, 0)
    setting = pick(rng, tuple(SETTINGS))
    weather, light = pick(rng, tuple(CONDITIONS), tuple(CONDITIONS.values()))
    horizon = round(float(rng.uniform(0.42, 0.48)), DIGITS)
    wanted = pick(rng, (1, 2, 3), (0.28, 0.50, 0.22))
    for attempt in range(1000):
        # things that do not fit are sampled again, after a while fewer; one medium object always fits
        things = _sample_things(rng, setting, max(1, wanted - attempt // 25))
        boat = any(thing.place == "water" for thing in things)
        depth = rng.uniform(0.24, 0.30) if boat else rng.uniform(0.09, 0.13)
        shore = round(horizon + float(depth), DIGITS) if setting in ("beach", "lake") else horizon
        placed = _place(rng, things, horizon, shore)
        if placed:
            break
    else:
        raise RuntimeError(f"no layout for scene {index} of seed {seed}")
    scenery = _sample_scenery(rng, setting, placed)
    # annotators name people and animals before things, and large before small
    placed.sort(key=lambda t: CATEGORIES[t.category].salience * (0.08 + sum(map(area, t.boxes))), reverse=True)
    return Scene(setting, weather, light, horizon, shore, scenery, tuple(placed))


def area(box: Box) -> float:
    """Area of a box as a fraction of the picture's."""
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def overlap(a: Box, b: Box) -> float:
    """Shared area as a fraction of the smaller box."""
    shared = (max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
    return area(shared) / min(area(a), area(b))


def around(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds all `boxes`."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


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


def _sample_things(rng: np.random.Generator, setting: str, number: int) -> list[Thing]:
    names: dict[str, None] = {}  # an ordered set
    while len(names) < number:
        names[pick(rng, SETTINGS[setting])] = None
    return [_sample_thing(rng, name, setting, alone=i == 0) for i, name in enumerate(names)]


def _sample_thing(rng: np.random.Generator, name: str, setting: str, alone: bool) -> Thing:
    category = CATEGORIES[name]
    poses = [pose for pose in category.poses if pose != "grazing" or setting in GRASSY]
    pose = pick(rng, poses)
    count = min(category.most, pick(rng, (1, 2, 3), (0.60, 0.22, 0.18) if alone else (0.86, 0.14, 0.0)))
    patterned = rng.random() < category.patterned
    return Thing(
        category=name,
        colour=pick(rng, category.colours),
        pattern=pick(rng, ("striped", "spotted")) if patterned else "plain",
        size=pick(rng, tuple(SIZES), (0.18, 0.46, 0.36)),
        count=count,
        pose=pose,
        place="water" if name == "boat" else "air" if pose == "flying" else "ground",
        facing=pick(rng, ("left", "right")),
    )


def _place(rng: np.random.Generator, things: list[Thing], horizon: float, shore: float) -> list[Thing]:
    """The same things with boxes that keep clear of each other and of the picture's edge; [] if they do not fit."""
    placed: list[Thing] = []
    for thing in things:
        scale = CATEGORIES[thing.category].unit * SIZES[thing.size] * BY_OBJECTS[len(things)] * BY_COUNT[thing.count]
        for _ in range(12):
            boxes = _boxes(rng, thing, scale, horizon, shore, len(things))
            if boxes and all(_clear(mine, other) for mine in boxes for t in placed for other in t.boxes):
                placed.append(replace(thing, boxes=tuple(boxes), box=around(boxes)))
                break
        else:
            return []
    return placed


def _clear(a: Box, b: Box) -> bool:
    """Whether neither of two objects hides much of the other or seems to stand on it."""
    far, near = (a, b) if a[3] < b[3] else (b, a)
    if min(a[2], b[2]) - max(a[0], b[0]) < 0.0:
        return True
    gap = near[1] - far[3]
    return gap > 0.03 or (gap < -0.07 and overlap(a, b) < 0.12 and near[3] - far[3] > 0.1)


def _boxes(
    rng: np.random.Generator, thing: Thing, scale: float, horizon: float, shore: float, things: int
) -> list[Box]:
    """One random position: a box for each object, or [] if one leaves the picture or floats above its ground."""
    left, right, top = (scale * reach for reach in CATEGORIES[thing.category].poses[thing.pose])
    if thing.facing == "left":
        left, right = right, left
    width, margin = left + right, 0.02
    if thing.place == "air":
        base = rng.uniform(top + margin, max(top + margin, horizon + 0.10))
    elif thing.place == "water":
        base = rng.uniform(max(horizon + 0.1, top + margin), max(shore - 0.03, top + margin))
    elif things > 1 and rng.random() < 0.4:
        base = rng.uniform(shore + 0.07, max(0.76, shore + 0.07))
    else:
        base = rng.uniform(max(0.80, shore + 0.07), 0.95)
    step = width * 1.03
    offsets = [(i - (thing.count - 1) / 2) * step for i in range(thing.count)]
    bases = [base + float(rng.uniform(-0.012, 0.012)) for _ in offsets]
    if thing.count == 3 and width > top:  # two behind, one in front
        offsets = [-step / 2, step / 2, float(rng.uniform(-0.2, 0.2)) * step]
        bases = [base - top * 0.95, base - top * 0.95 + 0.01, base]
    span = max(offsets) - min(offsets) + width
    if span > 1 - 2 * margin:
        return []
    x = rng.uniform(margin, 1 - margin - span) - min(offsets) + left
    corners = [(x + dx - left, y - top, x + dx + right, y) for dx, y in zip(offsets, bases, strict=True)]
    boxes: list[Box] = [tuple(round(float(v), DIGITS) for v in box) for box in corners]  # type: ignore[misc]
    lowest = {"air": 0.0, "water": horizon + 0.05, "ground": shore + 0.05}[thing.place]
    highest = {"air": 0.8, "water": shore - 0.01, "ground": 0.98}[thing.place]
    fits = all(box[1] >= margin and lowest <= box[3] <= highest for box in boxes)
    return boxes if fits else []


def _sample_scenery(rng: np.random.Generator, setting: str, things: list[Thing]) -> dict[str, float]:
    """Landmarks of the setting; those that things can hide are left out where no free place is found."""
    always = {"park": ["trees"], "street": ["buildings"], "snow": ["mountains"], "lake": ["trees"], "farm": ["fence"]}
    scenery = {name: 0.5 for name in always.get(setting, [])}
    half, height, name = {"desert": (0.10, 0.26, "cactus"), "farm": (0.14, 0.24, "barn")}.get(setting, (0, 0, ""))
    for _ in range(6 if name else 0):
        x = round(float(rng.uniform(half + 0.02, 0.98 - half)), DIGITS)
        if all(overlap((x - half, 0.44 - height, x + half, 0.5), b) < 0.15 for t in things for b in t.boxes):
            scenery[name] = x
            break
    return scenery
