"""One scene's facts: which things there are, where they are, and which relations hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline.errors import UserError

Box = tuple[float, float, float, float]
"""Left, top, right, bottom as fractions of the picture, y downwards."""
T = TypeVar("T")
Drawn = TypeVar("Drawn")
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
    neighbourhood: int = -1  # which scenes share all but a fact or two with this one; -1: unknown

    def record(self) -> dict[str, Any]:
        """The facts as JSON can hold them, in fractions of the picture."""
        facts = asdict(self)
        facts["objects"] = facts.pop("things")
        return facts

    @classmethod
    def of(cls, record: dict[str, Any]) -> Scene:
        """The scene whose `record` this is; other keys are ignored."""
        known = {f.name: record[f.name] for f in fields(cls) if f.name in record}
        things = tuple(
            Thing(**{**thing, "boxes": tuple(map(tuple, thing["boxes"])), "box": tuple(thing["box"])})
            for thing in record["objects"]
        )
        return cls(**known, things=things)


def read_facts(path: Path) -> dict[str, Scene]:
    """The scenes of a `facts.jsonl` by the prepared data's image ids; UserError where it is missing or broken."""
    return read_drawn(path, "scene", Scene.of)


def read_drawn(path: Path, kind: str, of: Callable[[dict[str, Any]], Drawn]) -> dict[str, Drawn]:
    """What was drawn, by the prepared data's image ids: `of` each line's record; UserError where one is no `kind`."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; draw the {kind}s again") from None
    drawn: dict[str, Drawn] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            drawn[str(record["imgid"])] = of(record)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: line {number} holds no {kind} ({error!r}); draw the {kind}s again") from None
    return drawn


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
