"""Layout of a scene: random boxes of the things, which overlap little and lie on ground, on water or in the air."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.worlds.scenes.scene_facts import DIGITS, Box, Thing, bounding_box, overlap, relation_holds
from pipeline.worlds.scenes.scene_world import CATEGORIES, SCALE_BY_COUNT, SCALE_BY_THINGS, SIZES

TRIES = 8  # positions to try for one thing
HALVES = {"left_of": (0.0, 0.5), "right_of": (0.5, 0.0)}  # left edges of the halves for the first and the second thing
DEPTHS = {"in_front_of": ("front", "back"), "behind": ("back", "front")}  # depths of the first and the second thing


def place(
    rng: np.random.Generator, things: Sequence[Thing], arrangement: str, horizon: float, shore: float, scale: float
) -> list[Thing]:
    """Return the things with boxes inside the image that hide little of each other; [] if the things do not fit.

    `arrangement` is the relation from the first thing to the second, "" without a second. `scale` multiplies all sizes.
    """
    placed: list[Thing] = []
    for i, thing in enumerate(things):
        start = HALVES[arrangement][i] if arrangement in HALVES and i < 2 else -1.0
        depth = "" if len(things) > 1 else "front"
        if arrangement in DEPTHS and i < 2:
            depth = DEPTHS[arrangement][i]
        unit = scale * CATEGORIES[thing.category].unit * SIZES[thing.size]
        unit *= SCALE_BY_THINGS[len(things)] * SCALE_BY_COUNT[thing.count]
        for _ in range(TRIES):
            boxes = _boxes(rng, thing, unit, horizon, shore, start, depth)
            if not boxes or not all(_clear(box, other) for box in boxes for t in placed for other in t.boxes):
                continue
            candidate = replace(thing, boxes=tuple(boxes), box=bounding_box(boxes))
            if len(placed) != 1 or relation_holds(arrangement, placed[0], candidate):
                placed.append(candidate)
                break
        else:
            return []
    return placed


def _clear(a: Box, b: Box) -> bool:
    """Return whether neither of two objects hides much of the other or appears to stand on it."""
    back, front = (a, b) if a[3] < b[3] else (b, a)
    if min(a[2], b[2]) - max(a[0], b[0]) < 0.0:
        return True
    gap = front[1] - back[3]
    return gap > 0.03 or (gap < -0.07 and overlap(a, b) < 0.12 and front[3] - back[3] > 0.1)


def _boxes(
    rng: np.random.Generator, thing: Thing, scale: float, horizon: float, shore: float, start: float, depth: str
) -> list[Box]:
    """Return one random position: a box per object; [] if a box leaves the image or its ground, water or air.

    `start` is the left edge of the half of the image to use, -1 for the whole image. `depth` is front, back, or "" for
    either.
    """
    left, right, top = (scale * reach for reach in CATEGORIES[thing.category].poses[thing.pose])
    if thing.facing == "left":
        left, right = right, left
    width, margin = left + right, 0.02
    if thing.place == "air":
        base = rng.uniform(top + margin, max(top + margin, horizon + 0.10))
    elif thing.place == "water":
        base = rng.uniform(max(horizon + 0.1, top + margin), max(shore - 0.03, top + margin))
    elif depth == "back" or (not depth and rng.random() < 0.4):
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
    across = rng.random() if start < 0 else start + rng.random() / 2
    x = margin + across * (1 - 2 * margin - span) - min(offsets) + left
    corners = [(x + dx - left, y - top, x + dx + right, y) for dx, y in zip(offsets, bases, strict=True)]
    boxes: list[Box] = [tuple(round(float(v), DIGITS) for v in box) for box in corners]  # type: ignore[misc]
    lowest = {"air": 0.0, "water": horizon + 0.05, "ground": shore + 0.05}[thing.place]
    highest = {"air": 0.8, "water": shore - 0.01, "ground": 0.98}[thing.place]
    fits = all(box[1] >= margin and lowest <= box[3] <= highest for box in boxes)
    return boxes if fits else []
