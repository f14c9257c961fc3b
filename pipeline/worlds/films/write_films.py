"""The film data set on disk: animated GIFs, captions in two common formats, and the facts behind the captions."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from pipeline.errors import UserError
from pipeline.runtime.files import write_atomically
from pipeline.worlds.films.draw_film import draw_film, save_gif
from pipeline.worlds.films.film_captions import describe_film
from pipeline.worlds.films.film_facts import FACTS, Film
from pipeline.worlds.films.motion import seen_in
from pipeline.worlds.films.sample_films import sample_film
from pipeline.worlds.scenes.dataset_files import (
    check_sizes,
    coco_file,
    draw_all,
    karpathy_file,
    replace_folder,
    splits_of,
    write_captions,
)
from pipeline.worlds.scenes.scene_captions import SceneCaption

DATASET = "films"
KARPATHY, COCO = karpathy_file(DATASET), coco_file(DATASET)
FRAMES = range(4, 101)


def draw_films(
    root: Path, images: int, size: int, frames: int, val: int, test: int, seed: int, workers: int | None = None
) -> dict[str, int]:
    """Draw films of `frames` frames into the folder `root`, which is replaced only when all is drawn.

    Splits, sizes and counts are those of scenes (scenes/write_scenes.py), with a film as an image. Raises UserError in
    the same cases, and for an impossible number of frames.
    """
    check_sizes(images, size, val, test, seed)
    if frames not in FRAMES:
        raise UserError(f"draw: films of {frames} frames cannot be drawn; choose {FRAMES[0]} to {FRAMES[-1]} frames")
    with replace_folder(Path(root), {"images", KARPATHY, COCO, FACTS}) as part:
        drawn = draw_all(partial(_draw_one, part / "images", size, frames, seed), images, workers)
        splits, files = splits_of(images, val, test), [film_file_name(i) for i in range(images)]
        counts = write_captions(part, DATASET, files, [captions for _, captions in drawn], splits, size)
        facts = (
            {"imgid": i, "filename": film_file_name(i), "frames": frames, **film.record(seen_in(film, frames))}
            for i, (film, _) in enumerate(drawn)
        )
        write_atomically(part / FACTS, "".join(json.dumps(fact) + "\n" for fact in facts))
    return counts


def film_file_name(index: int) -> str:
    """Return the name of a film's file below `images/`."""
    return f"{index:06d}.gif"


def _draw_one(folder: Path, size: int, frames: int, seed: int, index: int) -> tuple[Film, list[SceneCaption]]:
    film = sample_film(seed, index)
    save_gif(folder / film_file_name(index), draw_film(film, seed, frames, size))
    return film, describe_film(film, seed, index)
