"""Hard galleries of drawn scenes and films by their facts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from torch import Tensor

from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError
from pipeline.evaluation.hard_gallery import HardGallery, find_galleries_by_key
from pipeline.worlds.films.film_facts import FILM_FACTS
from pipeline.worlds.scenes.known_scenes import require_facts
from pipeline.worlds.scenes.scene_facts import NO_NEIGHBOURHOOD, SCENE_FACTS, read_drawn_facts


def build_galleries_by_facts(prepared: PreparedData) -> HardGallery:
    """Return the function that builds each image's hard gallery from the facts.

    A gallery holds the images of one neighbourhood. Images without a neighbourhood form galleries by setting,
    weather and light.

    Raises UserError if the file of facts is missing, unreadable or damaged, or repeats an image. The returned function
    raises UserError for an image without facts.
    """
    for name, kind in ((SCENE_FACTS, "scene"), (FILM_FACTS, "film")):
        if (path := prepared.folder / name).exists():
            groups = read_drawn_facts(path, kind, _get_group)
            break
    else:
        raise UserError(
            f"{prepared.folder / SCENE_FACTS}: missing; evaluate.hard_gallery.similarity = facts needs the facts of "
            "drawn scenes or films; choose features, or draw the data set"
        )

    def find_galleries(rows: np.ndarray) -> Tensor:
        return find_galleries_by_key(require_facts(prepared, groups, rows))

    return find_galleries


def _get_group(record: dict[str, Any]) -> Hashable:
    number: Hashable = record.get("neighbourhood", NO_NEIGHBOURHOOD)
    return (record["setting"], record["weather"], record["light"]) if number == NO_NEIGHBOURHOOD else number
