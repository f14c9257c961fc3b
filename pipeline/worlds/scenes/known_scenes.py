"""Facts of drawn scenes by image id, and the checker of captions against these facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.evaluation.caption_truth import TruthChecker
from pipeline.worlds.scenes.faithfulness import Faithfulness, judge_faithfulness
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene, read_facts

T = TypeVar("T")


def read_known_scenes(prepared: PreparedData) -> Mapping[str, Scene]:
    """Return the facts of drawn scenes by image id; {} for other images. Raises UserError if the file is damaged."""
    path = prepared.folder / SCENE_FACTS
    if not path.exists():
        return {}
    state = path.stat()
    return _read_unchanged_facts(path, state.st_mtime_ns, state.st_size)


@lru_cache(1)  # several parts of an evaluation read the facts of all images
def _read_unchanged_facts(path: Path, modified: int, size: int) -> Mapping[str, Scene]:
    return MappingProxyType(read_facts(path))


def require_facts(prepared: PreparedData, facts: Mapping[str, T], rows: np.ndarray) -> list[T]:
    """Return the facts of the images `rows`. Raises UserError if `facts`, by image id, lacks an image."""
    image_ids = prepared.ids.take(rows).to_pylist()
    missing = next((image_id for image_id in image_ids if image_id not in facts), None)
    if missing is not None:
        raise UserError(f"{prepared.folder}: no facts of image {missing}; run the prepare stage again")
    return [facts[image_id] for image_id in image_ids]


def build_scene_truth(prepared: PreparedData) -> TruthChecker | None:
    """Return the checker of captions against the facts of their scenes; None without drawn scenes.

    The checker raises UserError for an image without facts.
    """
    scenes = read_known_scenes(prepared)

    def check(captions: Sequence[str], rows: np.ndarray) -> Faithfulness:
        return judge_faithfulness(captions, require_facts(prepared, scenes, rows))

    return check if scenes else None
