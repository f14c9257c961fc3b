"""The few numbers of an evaluation that DVC shows and compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.evaluation.near import NEAR


def summary(found: Mapping[str, Any]) -> dict[str, float]:
    """CIDEr, R@10 from caption to image by each judge and, where it was measured, R@1 among the nearest images.

    `found` is a split of metrics.json. At most eleven numbers of five judges: `dvc metrics show` is one table. Of
    dialogs MRR, by the generator itself and by each discriminator.
    """
    if "ranking" in found:
        by = {f"MRR {name}": judge["ranking"]["MRR"] for name, judge in found["judges"].items()}
        return {"MRR": found["ranking"]["MRR"]} | by
    numbers = {"CIDEr": found["language"].get("CIDEr")}
    for name, judge in found["judges"].items():
        numbers[f"R@10 {name}"] = judge["text_to_image"]["R@10"]
    for name, judge in found["judges"].items():
        numbers[f"R@1 near {name}"] = judge["galleries"].get(NEAR, {}).get("R@1")
    return {name: value for name, value in numbers.items() if value is not None}
