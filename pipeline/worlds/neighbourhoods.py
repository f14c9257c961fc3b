"""Neighbourhoods of drawn scenes and films: images that share all but one or two facts."""

from __future__ import annotations

import numpy as np

from pipeline.data.prepared import Prepared
from pipeline.worlds.films.film_facts import FACTS as FILM_FACTS
from pipeline.worlds.films.film_facts import read_films
from pipeline.worlds.scenes.scene_facts import FACTS, read_facts


def neighbourhood_numbers(prepared: Prepared) -> np.ndarray | None:
    """Return (M,) the number of each image's neighbourhood; None where an image was not drawn in one."""
    path, drawn = prepared.folder / FACTS, prepared.folder / FILM_FACTS
    if drawn.exists():
        scenes = {name: known.film.scene for name, known in read_films(drawn).items()}
    else:
        scenes = read_facts(path) if path.exists() else {}
    numbers = np.array([scenes[name].neighbourhood if name in scenes else -1 for name in prepared.ids.to_pylist()])
    return None if (numbers < 0).any() else numbers
