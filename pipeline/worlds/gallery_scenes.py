"""Drawn scenes in the report's gallery: larger pictures, and the truth of captions' words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pipeline.worlds.films.film_facts import FILM_FACTS
from pipeline.worlds.scenes.drawing.draw_scene import draw_scene
from pipeline.worlds.scenes.faithfulness import check_words
from pipeline.worlds.scenes.scene_facts import SCENE_FACTS, Scene, read_facts


@dataclass(frozen=True)
class GalleryScene:
    """Drawn scene with the id of its image, a number as text."""

    scene: Scene
    id: str

    def draw(self, seed: int, pixels: int) -> Image.Image:
        """Draw the scene, `pixels` wide, with the seed of its data set."""
        return draw_scene(self.scene, seed, int(self.id), pixels)

    def judge_words(self, caption: str) -> list[bool | None]:
        """Return whether the claims of each word of `caption` are true; None for a word without claims."""
        return [truth for _, truth in check_words(caption, self.scene)]


def has_simulated_captions(prepared: Path) -> bool:
    """Return whether a grammar generated the captions: the prepared data set has facts of drawn scenes or films."""
    return any((prepared / name).exists() for name in (SCENE_FACTS, FILM_FACTS))


def find_gallery_scenes(prepared: Path) -> dict[str, GalleryScene]:
    """Return the scenes of a prepared data set by image id; empty for films, and for photos, which have no facts.

    Raises UserError if the file of facts is damaged.
    """
    path = prepared / SCENE_FACTS
    return {id: GalleryScene(scene, id) for id, scene in read_facts(path).items()} if path.exists() else {}
