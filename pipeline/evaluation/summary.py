"""Summary metrics of an evaluation, which DVC shows and compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.metrics.gallery_names import HARD_GALLERY


def select_summary_metrics(results: Mapping[str, Any]) -> dict[str, float]:
    """Return CIDEr, each judge's text-to-image R@10, and its R@1 in the hard gallery if that was measured.

    `results` is a split of metrics.json. Five judges give at most eleven numbers, so that `dvc metrics show` is one
    table.
    """
    metrics = {"CIDEr": results["language"].get("CIDEr")}
    for name, judge in results["judges"].items():
        metrics[f"R@10 {name}"] = judge["text_to_image"]["R@10"]
    for name, judge in results["judges"].items():
        metrics[f"R@1 (hard) {name}"] = judge["galleries"].get(HARD_GALLERY, {}).get("R@1")
    return {name: value for name, value in metrics.items() if value is not None}
