"""The trade-off curve of one method, and the weights of its settings at a value between those measured.

How a curve is read. Settings come in any order and their numbers are noisy, but the methods promise one thing:
naturalness (CIDEr) is traded for discriminability (recall by the own listener). So along the axis that is held fixed,
the other of the two may only fall. Settings that contradict it are pooled by isotonic regression (Barlow et al. 1972;
pool adjacent violators): the estimate at each of them is their common mean. An upper envelope would keep those that are
high by chance. Between neighbours the curve is linear; it ends at the measured settings.

The result is a weight for each setting, and every other number at that value is the weighted mean. So one mixture of
settings gives all numbers in a row of a table, and nothing is assumed of the other metrics and judges: an independent
judge's recall may well fall where that of the own listener rises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.analysis.results import Point, Results, Run, named

SAME = 1e-9  # relative; nearer numbers are the same number, summed in another order


@dataclass(frozen=True)
class Curve:
    """The points of one method that differ in its dial alone, which is λ, or the γ of guidance."""

    label: str  # the method, and those of its other settings that vary within it
    method: str
    settings: Mapping[str, Any]  # without the dial and the seed
    points: tuple[Point, ...]

    @property
    def runs(self) -> list[Run]:
        return [run for point in self.points for run in point.runs]


def curves(results: Results) -> list[Curve]:
    """The curves of all methods: settings that differ in more than the dial and the seed are on different ones."""
    found: list[Curve] = []
    for method in results.methods:
        lines: dict[tuple[str, ...], list[Point]] = {}
        dial = results.dial(method)
        for point in results.of(method):
            key = tuple(f"{name}={point.settings[name]}" for name in sorted(point.settings) if name != dial)
            lines.setdefault(key, []).append(point)
        varying = results.varying(method)
        for points in lines.values():
            fixed = {name: value for name, value in points[0].settings.items() if name != dial}
            names = [method, *(named(points[0], name) for name in varying)]
            found.append(Curve(" ".join(names), method, fixed, tuple(points)))
    return found


def mixture(x: np.ndarray, y: np.ndarray, at: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Weights (…, n) of n settings at the value `at` (…) of `x` (…, n), and whether the curve reaches it (…).

    `y` (…, n) is what `x` is traded for. Weights are not negative and sum to 1. Where `x` does not reach `at` they are
    those of its nearest end: below its lowest value that is a lower bound of `y`, above its highest it is no estimate
    (the second result is False). Leading axes are independent curves (resamples).
    """
    x, y = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    value = np.broadcast_to(np.asarray(at, dtype=np.float64), x.shape[:-1])[..., None]
    order = np.lexsort((y, x))  # of equal x the smaller y first: they contradict each other and are pooled
    x, y = np.take_along_axis(x, order, -1), np.take_along_axis(y, order, -1)
    room = SAME * np.abs(x).max(-1, keepdims=True)
    reached = (value <= x[..., -1:] + room)[..., 0]

    right = np.clip((x < value).sum(-1, keepdims=True), min(1, x.shape[-1] - 1), x.shape[-1] - 1)
    left = np.maximum(right - 1, 0)
    low, high = np.take_along_axis(x, left, -1), np.take_along_axis(x, right, -1)
    step = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, np.clip((value - low) / step, 0.0, 1.0), 0.0)
    pooled = _pooled(y)
    sorted_weights = (1 - share) * np.take_along_axis(pooled, left[..., None], -2)[..., 0, :]
    sorted_weights += share * np.take_along_axis(pooled, right[..., None], -2)[..., 0, :]
    weights = np.empty_like(sorted_weights)
    np.put_along_axis(weights, order, sorted_weights, -1)
    return weights, reached


def _pooled(y: np.ndarray) -> np.ndarray:
    """Weights of the settings at each setting (…, n, n): equal for those pooled with it; rows sum to 1.

    `y` (…, n) may only fall. The regression in closed form: at i it is the least, over a ≤ i, of the greatest,
    over b ≥ i, mean of y[a … b].
    """
    n = y.shape[-1]
    sums = np.concatenate([np.zeros((*y.shape[:-1], 1)), np.cumsum(y, -1)], -1)
    first, last = np.arange(n)[:, None], np.arange(n)[None, :]
    means = (sums[..., None, 1:] - sums[..., :-1, None]) / np.maximum(last - first + 1, 1)
    greatest = np.maximum.accumulate(np.where(first <= last, means, -np.inf)[..., ::-1], axis=-1)[..., ::-1]
    fitted = np.where(first <= last, greatest, np.inf).min(axis=-2)
    near = SAME * np.maximum(np.abs(y).max(-1), 1.0)[..., None, None]
    together = np.abs(fitted[..., :, None] - fitted[..., None, :]) <= near
    return together / together.sum(-1, keepdims=True)
