"""Neighbourhoods of drawn scenes and films: images that differ in one or two varied facts."""

from __future__ import annotations

import numpy as np

from pipeline.data.prepared import PreparedData
from pipeline.worlds.films.film_facts import FILM_FACTS, read_films
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, read_facts


def find_neighbourhood_numbers(prepared: PreparedData) -> np.ndarray | None:
    """Return the number of each image's neighbourhood, (M,) int64; None if any image has no neighbourhood.

    Raises UserError if the file of facts is damaged.
    """
    films_path, scenes_path = prepared.folder / FILM_FACTS, prepared.folder / SCENE_FACTS
    if films_path.exists():
        scenes = {name: record.film.scene for name, record in read_films(films_path).items()}
    else:
        scenes = read_facts(scenes_path) if scenes_path.exists() else {}
    numbers = np.array([scenes[name].neighbourhood if name in scenes else -1 for name in prepared.ids.to_pylist()])
    return None if (numbers < 0).any() else numbers
