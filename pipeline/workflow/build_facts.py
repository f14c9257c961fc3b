"""What is known of prepared images beside captions: the facts of drawn scenes, for a detector and for batches."""

from __future__ import annotations

import numpy as np

from pipeline.data.prepared import Prepared
from pipeline.errors import UserError
from pipeline.features.object_detector import Annotated
from pipeline.scenes.facts import FACTS, Scene, atmosphere, read_facts

LABELS = ("category", "colour", "pose", "pattern", "size", "count")  # of an object


def objects(prepared: Prepared, frames: int | None = None) -> list[Annotated]:
    """The annotations of all images, in order, or of `frames` of each film; UserError for those not drawn."""
    path = prepared.folder / FACTS
    if not path.exists():
        raise UserError(
            f"{path}: no such file: object_detector learns the facts of drawn scenes; choose another features.network"
        )
    scenes = read_facts(path)
    return [_annotated(scenes[name]) for name in prepared.ids.to_pylist()]


def neighbourhoods(prepared: Prepared) -> np.ndarray:
    """(M,) the number of each image's neighbourhood; UserError for images that were not drawn in neighbourhoods."""
    path = prepared.folder / FACTS
    scenes = read_facts(path) if path.exists() else {}
    numbers = np.array([scenes[name].neighbourhood if name in scenes else -1 for name in prepared.ids.to_pylist()])
    if (numbers < 0).any():
        raise UserError(f"{path}: images without a neighbourhood; with these images optimisation.order must be random")
    return numbers


def _annotated(scene: Scene) -> Annotated:
    objects = [
        (box, tuple(f"{label} {getattr(thing, label)}" for label in LABELS))
        for thing in scene.things
        for box in thing.boxes
    ]
    return Annotated((f"setting {scene.setting}", f"air {atmosphere(scene)}"), tuple(objects))
