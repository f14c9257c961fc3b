"""Layout of a scene: random boxes of the things, which overlap little and are on ground, on water or in the air."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.worlds.scenes.scene_facts import (
    DIGITS,
    Box,
    Thing,
    compute_bounding_box,
    compute_overlap,
    relation_holds,
    sample_uniform,
)
from pipeline.worlds.scenes.scene_world import CATEGORIES, SCALE_BY_COUNT, SCALE_BY_THINGS, SIZES

TRIES = 8  # positions to try for one thing
HALVES = {"left_of": (0.0, 0.5), "right_of": (0.5, 0.0)}  # start of the half for the first and the second thing
DEPTHS = {"in_front_of": ("front", "back"), "behind": ("back", "front")}  # depths of the first and the second thing


def place_things(
    rng: np.random.Generator, things: Sequence[Thing], arrangement: str, horizon: float, shore: float, scale: float
) -> list[Thing]:
    """Return the things with boxes inside the image that hide little of each other; [] if the things do not fit.

    `arrangement` is the relation from the first thing to the second, "" without a second. `scale` multiplies all sizes.
    """
    placed_things: list[Thing] = []
    for i, thing in enumerate(things):
        start = HALVES[arrangement][i] if arrangement in HALVES and i < 2 else -1.0
        depth = "" if len(things) > 1 else "front"
        if arrangement in DEPTHS and i < 2:
            depth = DEPTHS[arrangement][i]
        unit = scale * CATEGORIES[thing.category].unit * SIZES[thing.size]
        unit *= SCALE_BY_THINGS[len(things)] * SCALE_BY_COUNT[thing.count]
        for _ in range(TRIES):
            boxes = _sample_boxes(rng, thing, unit, horizon, shore, start, depth)
            if not boxes or not all(_is_clear(box, other) for box in boxes for t in placed_things for other in t.boxes):
                continue
            candidate = replace(thing, boxes=tuple(boxes), box=compute_bounding_box(boxes))
            if len(placed_things) != 1 or relation_holds(arrangement, placed_things[0], candidate):
                placed_things.append(candidate)
                break
        else:
            return []
    return placed_things


def _is_clear(a: Box, b: Box) -> bool:
    """Return whether neither of two objects hides much of the other or appears to stand on it."""
    if a[2] < b[0] or b[2] < a[0]:
        return True
    back, front = (a, b) if a[3] < b[3] else (b, a)
    gap = front[1] - back[3]
    return gap > 0.03 or (gap < -0.07 and compute_overlap(a, b) < 0.12 and front[3] - back[3] > 0.1)


def _sample_boxes(
    rng: np.random.Generator, thing: Thing, unit: float, horizon: float, shore: float, start: float, depth: str
) -> list[Box]:
    """Return a box per object at one random position; [] if a box leaves the image or its ground, water or air.

    `unit` is the length of a drawing unit. The left edge of the boxes is random within the width that they leave free.
    `start` selects a part of this width: 0 the left half, 0.5 the right half, -1 the whole width. `depth` is front,
    back, or "" for either.
    """
    left, right, top = CATEGORIES[thing.category].poses[thing.pose]
    left, right, top = unit * left, unit * right, unit * top
    if thing.facing == "left":
        left, right = right, left
    width, margin, count = left + right, 0.02, thing.count
    if thing.place == "air":
        base = sample_uniform(rng, top + margin, max(top + margin, horizon + 0.10))
        min_base, max_base = 0.0, 0.8
    elif thing.place == "water":
        base = sample_uniform(rng, max(horizon + 0.1, top + margin), max(shore - 0.03, top + margin))
        min_base, max_base = horizon + 0.05, shore - 0.01
    else:
        if depth == "back" or (not depth and rng.random() < 0.4):
            base = sample_uniform(rng, shore + 0.07, max(0.76, shore + 0.07))
        else:
            base = sample_uniform(rng, max(0.80, shore + 0.07), 0.95)
        min_base, max_base = shore + 0.05, 0.98
    step = width * 1.03
    offsets = [(i - (count - 1) / 2) * step for i in range(count)]
    bases = [base + sample_uniform(rng, -0.012, 0.012) for _ in offsets]
    if count == 3 and width > top:  # two behind, one in front
        offsets = [-step / 2, step / 2, sample_uniform(rng, -0.2, 0.2) * step]
        bases = [base - top * 0.95, base - top * 0.95 + 0.01, base]
    leftmost = min(offsets)
    span = max(offsets) - leftmost + width
    if span > 1 - 2 * margin:
        return []
    position = rng.random() if start < 0 else start + rng.random() / 2
    heights: list[tuple[float, float]] = []
    for y in bases:
        top_y, base_y = round(y - top, DIGITS), round(y, DIGITS)
        if top_y < margin or not min_base <= base_y <= max_base:
            return []
        heights.append((top_y, base_y))
    x = margin + position * (1 - 2 * margin - span) - leftmost + left
    return [
        (round(x + dx - left, DIGITS), top_y, round(x + dx + right, DIGITS), base_y)
        for dx, (top_y, base_y) in zip(offsets, heights, strict=True)
    ]
