"""Galleries of eight drawn scenes at four difficulties: the number and kind of the facts that differ in a gallery."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.worlds.scenes.dataset_files import draw_all
from pipeline.worlds.scenes.sample_scenes import sample_scene_neighbourhood
from pipeline.worlds.scenes.scene_facts import Scene
from pipeline.worlds.scenes.scene_world import NEIGHBOURS

# the varied facts; facts that depend on random positions may differ as well (sample_scenes.py)
DIFFICULTIES = {
    1: "scenes of eight neighbourhoods; most facts differ",
    2: "two scenes of each of four neighbourhoods; one or two facts differ within a neighbourhood, most between them",
    3: "one neighbourhood; one or two facts differ",
    4: "one neighbourhood; one or two facts differ, and all scenes have the same colours and the same counts",
}
NEIGHBOURHOODS = {1: 8, 2: 4, 3: 1}  # per gallery, by difficulty
SAMPLES_PER_GALLERY = 12  # neighbourhoods sampled per missing gallery of difficulty 4; about 7 % are suitable


def sample_galleries(seed: int, galleries: int, difficulty: int, workers: int | None = None) -> list[list[int]]:
    """Return galleries of the world `seed`, each as the numbers of its eight scenes.

    A neighbourhood of the world (`sample_scene_neighbourhood`) belongs to one gallery at most.
    """
    if difficulty < 4:
        count = NEIGHBOURHOODS[difficulty]
        firsts = range(0, count * galleries, count)
        return [
            [NEIGHBOURS * (first + position % count) + position for position in range(NEIGHBOURS)] for first in firsts
        ]
    suitable: list[int] = []  # numbers of neighbourhoods
    first = 0
    while len(suitable) < galleries:
        sampled = SAMPLES_PER_GALLERY * (galleries - len(suitable))
        results = draw_all(partial(_is_suitable, seed, first), sampled, workers)
        suitable += [first + position for position, is_suitable in enumerate(results) if is_suitable]
        first += sampled
    return [[NEIGHBOURS * number + position for position in range(NEIGHBOURS)] for number in suitable[:galleries]]


def has_equal_counts_and_colours(scenes: Sequence[Scene]) -> bool:
    """Return whether all scenes have the same colours and the same counts, in any assignment to things."""
    colours = {tuple(sorted(thing.colour for thing in scene.things)) for scene in scenes}
    counts = {tuple(sorted(thing.count for thing in scene.things)) for scene in scenes}
    return len(colours) == len(counts) == 1


def _is_suitable(seed: int, first: int, offset: int) -> bool:
    """Return whether a neighbourhood is a gallery of difficulty 4."""
    return has_equal_counts_and_colours(sample_scene_neighbourhood(seed, first + offset))
