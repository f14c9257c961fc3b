"""The film data set on disk: animated GIFs, captions in two common formats, and the facts behind the captions."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipeline.worlds.films.draw_film import draw_film, save_gif
from pipeline.worlds.films.film_captions import describe_film
from pipeline.worlds.films.film_facts import FILM_FACTS, Film
from pipeline.worlds.films.motion import list_visible_actors
from pipeline.worlds.films.sample_films import sample_film
from pipeline.worlds.scenes.dataset_files import (
    DrawnDataset,
    assign_splits,
    draw_all,
    replace_folder,
    write_annotations,
)
from pipeline.worlds.scenes.scene_captions import SceneCaption

FILMS = DrawnDataset("films", FILM_FACTS, ".gif")


def draw_films(
    root: Path, images: int, size: int, frames: int, val: int, test: int, seed: int, workers: int | None = None
) -> dict[str, int]:
    """Draw films of `frames` frames into the folder `root`, which is replaced once all are drawn; return counts.

    Splits, sizes and counts are as for scenes (scenes/write_scenes.py), with a film as an image. `DrawFilms` checks
    these numbers. Raises UserError as `replace_folder` does.
    """
    with replace_folder(Path(root), FILMS) as part:
        films = draw_all(partial(_write_film, part / "images", size, frames, seed), images, workers)
        facts = ({"frames": frames, **film.record(list_visible_actors(film, frames))} for film, _ in films)
        captions, splits = [sentences for _, sentences in films], assign_splits(images, val, test)
        return write_annotations(part, FILMS, captions, facts, splits, size)


def _write_film(folder: Path, size: int, frames: int, seed: int, index: int) -> tuple[Film, list[SceneCaption]]:
    film = sample_film(seed, index)
    save_gif(folder / FILMS.image_file(index), draw_film(film, seed, frames, size))
    return film, describe_film(film, seed, index)
