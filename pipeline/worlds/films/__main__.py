"""Sheet of films, each with eight frames and a caption: `python -m pipeline.worlds.films --sheet docs/films.png`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from pipeline.errors import UserError
from pipeline.runtime.command import run_command
from pipeline.runtime.files import atomic_path
from pipeline.worlds.films.draw_film import draw_film
from pipeline.worlds.films.film_captions import describe_film
from pipeline.worlds.films.sample_films import sample_film
from pipeline.worlds.scenes.scene_world import MAX_IMAGES, SEEDS

GAP, LINE = 10, 18  # pixels between rows, and height of a caption in pixels
FRAMES = 8  # frames of a film


def draw_sheet(seed: int, films: list[int], side: int) -> Image.Image:
    """Draw a row of frames for each film, and below each row the film's caption with the most claims.

    `films` are the numbers of the films in the world `seed`. `side` is the width and height of a frame in pixels.
    """
    font = ImageFont.load_default(12)
    width, height = FRAMES * (side + 2) + 2 * GAP, side + LINE + GAP
    picture = Image.new("RGB", (width, len(films) * height + GAP), "white")
    pen = ImageDraw.Draw(picture)
    for row, number in enumerate(films):
        film, y = sample_film(seed, number), GAP + row * height
        for n, frame in enumerate(draw_film(film, seed, FRAMES, side)):
            picture.paste(frame, (GAP + n * (side + 2), y))
        caption = max(describe_film(film, seed, number), key=lambda c: len(c.claims))
        pen.text((GAP, y + side + 2), caption.raw, fill=(60, 60, 68), font=font)
    return picture


def main() -> None:
    """Write a contact sheet of the films that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.worlds.films", description=__doc__)
    parser.add_argument("--sheet", type=Path, required=True, help="PNG file to write")
    parser.add_argument("--seed", type=int, default=1, help="seed of the world")
    parser.add_argument(
        "--films", type=int, nargs="+", default=[24, 25, 64, 66, 160, 161, 208, 210], help="numbers of the films"
    )
    options = parser.parse_args()
    if not 0 <= options.seed < SEEDS:
        raise UserError(f"--seed {options.seed}: give a whole number from 0 to 2^63 − 1")
    if invalid := [number for number in options.films if not 0 <= number < MAX_IMAGES]:
        raise UserError(f"--films {invalid[0]}: give whole numbers from 0 to {MAX_IMAGES - 1}")
    picture = draw_sheet(options.seed, options.films, side=112)
    with atomic_path(options.sheet) as path:
        picture.quantize(128).save(path, "PNG", optimize=True)


if __name__ == "__main__":
    sys.exit(run_command("pipeline.worlds.films", main))
