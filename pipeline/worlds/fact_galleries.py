"""Hard galleries of drawn scenes and films by their facts."""

from __future__ import annotations

import json
from collections.abc import Hashable

import numpy as np
from torch import Tensor

from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.evaluation.hard_gallery import HardGallery, galleries_by_key
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.worlds.films.film_facts import FILM_FACTS
from pipeline.worlds.scenes.known_scenes import require_facts
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS


def galleries_by_facts(prepared: PreparedData) -> HardGallery:
    """Return the function that builds each image's hard gallery from the facts.

    A gallery holds the images of one neighbourhood; in data without neighbourhoods, of one setting, weather and light.

    Raises UserError if the file of facts, or the facts of an image, are missing.
    """
    paths = [prepared.folder / name for name in (SCENE_FACTS, FILM_FACTS)]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise UserError(
            f"{paths[0]}: missing; evaluate.hard_gallery.similarity = facts needs the facts of drawn scenes or films; "
            "choose features, or draw the data set"
        )
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    groups: dict[str, Hashable] = {str(record["imgid"]): _group(record) for record in records}

    def hard_gallery(rows: np.ndarray) -> Tensor:
        return galleries_by_key(require_facts(prepared, groups, rows))

    return hard_gallery


def _group(record: dict[str, Hashable]) -> Hashable:
    return record.get(HARD_GALLERY, (record["setting"], record["weather"], record["light"]))
