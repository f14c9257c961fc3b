"""The data set of films on disk: animated GIFs, captions in two common forms, and the facts that they are true of."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from pipeline.errors import UserError
from pipeline.films.captions import describe
from pipeline.films.draw import draw_film, save_gif
from pipeline.films.facts import FACTS, Film
from pipeline.films.motion import seen_in
from pipeline.films.sample import sample_film
from pipeline.runtime.files import write_atomically
from pipeline.scenes.captions import Description
from pipeline.scenes.form import all_drawn, check, coco_file, karpathy_file, replacing, splits_of, write_captions

DATASET = "films"
KARPATHY, COCO = karpathy_file(DATASET), coco_file(DATASET)
FRAMES = range(4, 101)


def draw(
    root: Path, images: int, size: int, frames: int, val: int, test: int, seed: int, workers: int | None = None
) -> dict[str, int]:
    """Draw films of so many frames into the folder `root`, which is replaced only when all is drawn.

    Splits, sizes and counts are as of scenes (scenes/write.py), an image being a film. Raises UserError as there.
    """
    check(images, size, val, test, seed)
    if frames not in FRAMES:
        raise UserError(f"draw: films of {frames} frames cannot be drawn; choose {FRAMES[0]} to {FRAMES[-1]} frames")
    with replacing(Path(root), {"images", KARPATHY, COCO, FACTS}) as part:
        drawn = all_drawn(partial(_draw_one, part / "images", size, frames, seed), images, workers)
        splits, files = splits_of(images, val, test), [file_name(i) for i in range(images)]
        counts = write_captions(part, DATASET, files, [captions for _, captions in drawn], splits, size)
        facts = (
            {"imgid": i, "filename": file_name(i), "frames": frames, **film.record(seen_in(film, frames))}
            for i, (film, _) in enumerate(drawn)
        )
        write_atomically(part / FACTS, "".join(json.dumps(fact) + "\n" for fact in facts))
    return counts


def file_name(index: int) -> str:
    """Name of a film's file below `images/`."""
    return f"{index:06d}.gif"


def _draw_one(folder: Path, size: int, frames: int, seed: int, index: int) -> tuple[Film, list[Description]]:
    film = sample_film(seed, index)
    save_gif(folder / file_name(index), draw_film(film, seed, frames, size))
    return film, describe(film, seed, index)
