"""Neighbourhoods of drawn scenes and films: images that differ in one or two varied facts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipeline.data.prepared import PreparedData
from pipeline.worlds.films.film_facts import FILM_FACTS, read_films
from pipeline.worlds.scenes.known_scenes import read_known_scenes
from pipeline.worlds.scenes.scene_facts import NO_NEIGHBOURHOOD, Scene


def find_neighbourhood_numbers(prepared: PreparedData) -> np.ndarray | None:
    """Return the number of each image's neighbourhood, (M,) int64; None if any image has no neighbourhood.

    Raises UserError if the file of facts is damaged.
    """
    films_path = prepared.folder / FILM_FACTS
    scenes: Mapping[str, Scene] = (
        {name: record.film.scene for name, record in read_films(films_path).items()}
        if films_path.exists()
        else read_known_scenes(prepared)
    )
    numbers = np.array(
        [scenes[name].neighbourhood if name in scenes else NO_NEIGHBOURHOOD for name in prepared.ids.to_pylist()]
    )
    return None if (numbers < 0).any() else numbers
