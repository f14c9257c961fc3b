"""Trade-off curves of methods, and the mixture weights of a curve's settings at a value between measured ones.

Settings come in any order and their metrics are noisy. Methods trade naturalness (CIDEr) for discriminability (the
score by the first judge). Along the fixed axis, the other metric may therefore only fall.
Settings that contradict this are pooled by isotonic regression (Barlow et al. 1972; pool adjacent violators). The
estimate at each of them is their common mean. An upper envelope would keep settings that are high by chance. The curve
is linear between neighbours and ends at the measured settings.

The result is a weight for each setting; every other metric at that value is the weighted mean. One mixture of settings
thus gives all metrics in a row of a table. Nothing is assumed about other metrics and judges: an independent judge's
recall may fall where that of the own listener rises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.analysis.results import Point, Results, Run, format_named_setting

TOLERANCE = 1e-9  # relative tolerance for rounding errors; in `_pool_weights` absolute for values below 1


@dataclass(frozen=True)
class Curve:
    """Points of one method that differ only in the curve's setting, `Results.curve_setting`, for example λ."""

    label: str  # the method, and its other settings that have several values
    method: str
    settings: Mapping[str, Any]  # without the curve's setting and the seed
    points: tuple[Point, ...]

    @property
    def runs(self) -> list[Run]:
        """Return the runs of all points."""
        return [run for point in self.points for run in point.runs]


def build_curves(results: Results) -> list[Curve]:
    """Return the curves of all methods; other settings than the curve's and the seed divide a method's points."""
    all_curves: list[Curve] = []
    for method in results.methods:
        groups: dict[tuple[str, ...], list[Point]] = {}
        curve_key = results.curve_setting(method)
        for point in results.get_points(method):
            key = tuple(part for part in point.runs[0].point if not part.startswith(f"{curve_key}="))
            groups.setdefault(key, []).append(point)
        varying = results.varying_settings(method)
        for points in groups.values():
            fixed = {name: value for name, value in points[0].settings.items() if name != curve_key}
            names = [method, *(format_named_setting(points[0], name) for name in varying)]
            all_curves.append(Curve(" ".join(names), method, fixed, tuple(points)))
    return all_curves


def compute_mixture(x: np.ndarray, y: np.ndarray, level: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (…, S) of S settings at the value `level` (…) of `x` (…, S), and whether the curve reaches it (…).

    `y` (…, S) is the metric that `x` is traded for. Weights are not negative and sum to 1. If `x` does not reach
    `level`, the weights are those of its nearest end. Below the lowest `x` they give a lower bound of `y`. Above the
    highest `x` they give no estimate (the second result is False). Leading axes are independent curves (resamples).
    """
    x, y = np.broadcast_arrays(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    value = np.broadcast_to(np.asarray(level, dtype=np.float64), x.shape[:-1])[..., None]
    order = np.lexsort((y, x))  # equal x: the smaller y first, so that they are pooled as violators
    x, y = np.take_along_axis(x, order, -1), np.take_along_axis(y, order, -1)
    tolerance = TOLERANCE * np.abs(x).max(-1, keepdims=True)
    reached = (value <= x[..., -1:] + tolerance)[..., 0]

    right = np.clip((x < value).sum(-1, keepdims=True), min(1, x.shape[-1] - 1), x.shape[-1] - 1)
    left = np.maximum(right - 1, 0)
    low, high = np.take_along_axis(x, left, -1), np.take_along_axis(x, right, -1)
    step = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, np.clip((value - low) / step, 0.0, 1.0), 0.0)
    pooled = _pool_weights(y)
    sorted_weights = (1 - share) * np.take_along_axis(pooled, left[..., None], -2)[..., 0, :]
    sorted_weights += share * np.take_along_axis(pooled, right[..., None], -2)[..., 0, :]
    weights = np.empty_like(sorted_weights)
    np.put_along_axis(weights, order, sorted_weights, -1)
    return weights, reached


def _pool_weights(y: np.ndarray) -> np.ndarray:
    """Return the weights of the settings at each setting (…, S, S): equal within a pool; rows sum to 1.

    The isotonic regression of `y` (…, S) never rises and has a closed form. Its value at i is the minimum over a ≤ i
    of the maximum over b ≥ i of the mean of y[a … b].
    """
    n = y.shape[-1]
    sums = np.concatenate([np.zeros((*y.shape[:-1], 1)), np.cumsum(y, -1)], -1)
    first, last = np.arange(n)[:, None], np.arange(n)[None, :]
    means = (sums[..., None, 1:] - sums[..., :-1, None]) / np.maximum(last - first + 1, 1)
    greatest = np.maximum.accumulate(np.where(first <= last, means, -np.inf)[..., ::-1], axis=-1)[..., ::-1]
    fitted = np.where(first <= last, greatest, np.inf).min(axis=-2)
    tolerance = TOLERANCE * np.maximum(np.abs(y).max(-1), 1.0)[..., None, None]
    pooled = np.abs(fitted[..., :, None] - fitted[..., None, :]) <= tolerance
    return pooled / pooled.sum(-1, keepdims=True)
