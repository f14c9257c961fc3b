"""Galleries of eight drawn scenes, at four difficulties: by the number and kind of the facts that tell them apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pipeline.worlds.scenes.dataset_files import draw_all
from pipeline.worlds.scenes.sample_scenes import sample_scene_neighbourhood
from pipeline.worlds.scenes.scene_facts import Scene
from pipeline.worlds.scenes.scene_world import NEIGHBOURS

DIFFICULTIES = {
    1: "scenes of eight neighbourhoods; most facts differ",
    2: "two scenes of each of four neighbourhoods; one or two facts differ from one scene, most from the others",
    3: "one neighbourhood; one or two facts differ",
    4: "one neighbourhood; one or two facts differ, and none of them is a new colour or count",
}
MIXED = {1: 8, 2: 4, 3: 1}  # neighbourhoods of a gallery
TRIED = 12  # neighbourhoods for each subtle one: about so many are sampled


def sample_galleries(seed: int, galleries: int, difficulty: int, workers: int | None = None) -> list[list[int]]:
    """Return galleries of the world `seed`, each as the numbers of its eight scenes.

    A neighbourhood of the world (`sample_scene_neighbourhood`) belongs to one gallery at most.
    """
    if difficulty < 4:
        mixed = MIXED[difficulty]
        firsts = range(0, mixed * galleries, mixed)
        return [[NEIGHBOURS * (first + place % mixed) + place for place in range(NEIGHBOURS)] for first in firsts]
    found: list[int] = []
    first = 0
    while len(found) < galleries:
        tried = TRIED * (galleries - len(found))
        subtle = draw_all(partial(_is_subtle, seed, first), tried, workers)
        found += [first + place for place, each in enumerate(subtle) if each]
        first += tried
    return [[NEIGHBOURS * number + place for place in range(NEIGHBOURS)] for number in found[:galleries]]


def differs_subtly(scenes: Sequence[Scene]) -> bool:
    """Return whether the scenes have the same colours and the same counts, whichever thing has which."""
    colours = {tuple(sorted(thing.colour for thing in scene.things)) for scene in scenes}
    counts = {tuple(sorted(thing.count for thing in scene.things)) for scene in scenes}
    return len(colours) == len(counts) == 1


def _is_subtle(seed: int, first: int, place: int) -> bool:
    return differs_subtly(sample_scene_neighbourhood(seed, first + place))
