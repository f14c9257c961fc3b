"""`python -m pipeline.films --sheet docs/films.png`: some films, eight frames of each, with one of its captions."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from pipeline.films.captions import describe
from pipeline.films.draw import draw_film
from pipeline.films.sample import sample_film
from pipeline.runtime.command import finish
from pipeline.runtime.files import atomic_path

GAP, LINE, FRAMES = 10, 18, 8


def sheet(seed: int, films: list[int], side: int) -> Image.Image:
    """A row for each of the films with these numbers, and below it its caption of most claims.

    `side` is the width of a frame in pixels.
    """
    font = ImageFont.load_default(12)
    width, height = FRAMES * (side + 2) + 2 * GAP, side + LINE + GAP
    picture = Image.new("RGB", (width, len(films) * height + GAP), "white")
    pen = ImageDraw.Draw(picture)
    for row, number in enumerate(films):
        film, y = sample_film(seed, number), GAP + row * height
        for n, frame in enumerate(draw_film(film, seed, FRAMES, side)):
            picture.paste(frame, (GAP + n * (side + 2), y))
        richest = max(describe(film, seed, number), key=lambda caption: len(caption.claims))
        pen.text((GAP, y + side + 2), richest.raw, fill=(60, 60, 68), font=font)
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pipeline.films", description=__doc__)
    parser.add_argument("--sheet", type=Path, required=True, help="PNG file to write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--films", type=int, nargs="+", default=[24, 25, 64, 66, 160, 161, 208, 210], help="their numbers"
    )
    options = parser.parse_args()
    picture = sheet(options.seed, options.films, side=112)
    with atomic_path(options.sheet) as path:
        picture.quantize(128).save(path, "PNG", optimize=True)


if __name__ == "__main__":
    sys.exit(finish("pipeline.films", main))
