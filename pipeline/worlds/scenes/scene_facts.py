"""Facts of one scene: its things, their boxes, and the relations that hold between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pipeline.errors import UserError, summarise_error

Box = tuple[float, float, float, float]
"""Left, top, right and bottom as fractions of the image, y downwards."""
T = TypeVar("T")
Drawn = TypeVar("Drawn")  # Scene or FilmRecord
SCENE_FACTS = "facts.jsonl"  # file of facts, one line per scene
NO_NEIGHBOURHOOD = -1  # `Scene.neighbourhood` of a scene outside all neighbourhoods
CONVERSE = {"right_of": "left_of", "behind": "in_front_of", "below": "above"}  # a is right of b where b is left of a
DIGITS = 4  # decimals of coordinates, which are rounded before drawing: the file holds the drawn values


@dataclass(frozen=True)
class Thing:
    """Group of one to three objects of one category with the same appearance."""

    category: str
    colour: str  # for a person: the clothes' colour
    pattern: str
    size: str
    count: int
    pose: str
    place: str  # ground, water or air
    facing: str  # left or right
    boxes: tuple[Box, ...] = ()  # box of each object's whole drawing
    box: Box = (0.0, 0.0, 0.0, 0.0)  # bounding box of `boxes`


@dataclass(frozen=True)
class Scene:
    """All facts of a scene, by which captions are judged; the first thing is the most salient."""

    setting: str
    weather: str  # sunny, cloudy, rainy or clear
    light: str  # day, sunset or night
    horizon: float  # as a fraction of the image, y downwards
    shore: float  # y at which the ground begins; equal to the horizon without water
    scenery: dict[str, float]  # landmarks in the background, and their x
    things: tuple[Thing, ...]
    neighbourhood: int = NO_NEIGHBOURHOOD  # number of the neighbourhood (sample_scenes.py)

    def record(self) -> dict[str, Any]:
        """Return the facts as JSON values, with lengths in fractions of the image."""
        facts = asdict(self)
        facts["objects"] = facts.pop("things")
        return facts

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Scene:
        """Return the scene of a `record`.

        Other keys of the record are ignored. A missing key, except `neighbourhood`, or an unknown key of a thing raises
        KeyError or TypeError.
        """
        values = {f.name: record[f.name] for f in fields(cls) if f.name in record}
        things = tuple(
            Thing(**{**thing, "boxes": tuple(map(tuple, thing["boxes"])), "box": tuple(thing["box"])})
            for thing in record["objects"]
        )
        return cls(**values, things=things)


def read_facts(path: Path) -> dict[str, Scene]:
    """Return the scenes of a `facts.jsonl` by image id.

    Raises UserError if the file cannot be read, a line lacks facts, or an image id occurs twice. Types and ranges of
    the values are not checked.
    """
    return read_drawn_facts(path, "scene", Scene.from_record)


def read_drawn_facts(path: Path, kind: str, build: Callable[[dict[str, Any]], Drawn]) -> dict[str, Drawn]:
    """Return the scenes or films of a file by image id, each built from its line's record by `build`.

    Raises UserError if the file cannot be read, a line holds no `kind`, or an image id occurs twice.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            lines = list(file)  # a value may contain U+2028, at which str.splitlines() would split
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; draw the {kind}s again") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({summarise_error(error)}); draw the {kind}s again") from None
    facts_by_image: dict[str, Drawn] = {}
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            name, value = str(record["imgid"]), build(record)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise UserError(f"{path}: line {number} holds no {kind} ({error!r}); draw the {kind}s again") from None
        if name in facts_by_image:
            raise UserError(f"{path}: line {number} repeats image {name}; draw the {kind}s again")
        facts_by_image[name] = value
    return facts_by_image


def name_atmosphere(scene: Scene) -> str:
    """Return the scene's weather by day, else its light: sunny, cloudy, rainy, sunset or night."""
    return scene.weather if scene.light == "day" else scene.light


def make_generator(seed: int, index: int, purpose: int) -> np.random.Generator:
    """Return the random generator for one purpose, such as captions, of the image or neighbourhood `index`.

    Its random numbers depend on the three arguments alone.
    """
    return np.random.Generator(np.random.Philox(key=[seed, index], counter=[0, 0, 0, purpose]))


def pick(rng: np.random.Generator, options: Sequence[T], weights: Sequence[float] | None = None) -> T:
    """Return one of `options`, uniformly or by `weights`, which need not sum to one."""
    if weights is None:
        return options[int(rng.random() * len(options))]
    level = rng.random() * sum(weights)
    for option, weight in zip(options, weights, strict=True):
        level -= weight
        if level < 0:
            return option
    return options[-1]


def sample_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Return the number that `rng.uniform(low, high)` would draw, in less time."""
    return low + (high - low) * rng.random()


def compute_area(box: Box) -> float:
    """Return the area of a box as a fraction of the image's area."""
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def compute_overlap(a: Box, b: Box) -> float:
    """Return the shared area of two boxes as a fraction of the smaller box's area."""
    intersection = (max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
    return compute_area(intersection) / min(compute_area(a), compute_area(b))


def compute_bounding_box(boxes: Sequence[Box]) -> Box:
    """Return the smallest box that holds all `boxes`."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def relation_holds(relation: str, a: Thing, b: Thing) -> bool:
    """Return whether `relation` holds from `a` to `b` by their boxes and places.

    Raises ValueError for an unknown relation.
    """
    (a0, a1, a2, a3), (b0, b1, b2, b3) = a.box, b.box
    shared_width = min(a2, b2) - max(a0, b0)  # negative: horizontal gap
    shared_height = min(a3, b3) - max(a1, b1)  # negative: vertical gap
    narrower = min(a2 - a0, b2 - b0)
    if relation == "left_of":
        return shared_width < 0.02 and a0 < b0
    if relation == "near":
        return max(-shared_width, -shared_height) < 0.25
    if relation == "beside":
        return -0.25 < shared_width < 0.02 and shared_height > 0.25 * min(a3 - a1, b3 - b1)
    if relation == "in_front_of":
        return "air" not in (a.place, b.place) and shared_width > 0.35 * narrower and a3 - b3 > 0.10
    if relation == "above":
        return a.place == "air" and shared_width > 0.25 * narrower and a3 < b1 + 0.02
    if relation in CONVERSE:
        return relation_holds(CONVERSE[relation], b, a)
    names = "left_of, near, beside, in_front_of, above"
    raise ValueError(f"unknown relation {relation!r}: expected {names}, {', '.join(CONVERSE)}")
