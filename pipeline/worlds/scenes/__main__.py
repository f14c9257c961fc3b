"""Sheet of scenes with a caption each: `python -m pipeline.worlds.scenes --sheet docs/scenes.png`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from pipeline.errors import UserError
from pipeline.runtime.command import run_command
from pipeline.runtime.files import atomic_path
from pipeline.worlds.scenes.drawing.draw_scene import draw_scene
from pipeline.worlds.scenes.sample_scenes import sample_scene
from pipeline.worlds.scenes.scene_captions import describe_scene
from pipeline.worlds.scenes.scene_world import MAX_IMAGES, SEEDS

GAP, LINES, LINE = 14, 2, 15  # pixels between images, lines of a caption, and height of a line in pixels


def draw_sheet(seed: int, first: int, columns: int, rows: int, side: int) -> Image.Image:
    """Return a grid of the images `first`, `first` + 1, … of the world `seed`, each with one of its captions.

    This caption has the most claims among the captions that fit in LINES lines, or among all if none fits.
    `side` is the width of an image in pixels.
    """
    font = ImageFont.load_default(12)
    width, height = side + GAP, side + 8 + LINES * LINE + GAP
    picture = Image.new("RGB", (columns * width + GAP, rows * height + GAP), "white")
    pen = ImageDraw.Draw(picture)
    corners = Image.new("L", (side * 2, side * 2), 0)
    ImageDraw.Draw(corners).rounded_rectangle((0, 0, side * 2 - 1, side * 2 - 1), 16, fill=255)
    for k in range(columns * rows):
        x, y = GAP + k % columns * width, GAP + k // columns * height
        scene = sample_scene(seed, first + k)
        picture.paste(draw_scene(scene, seed, first + k, side), (x, y), corners.reduce(2))
        captions = describe_scene(scene, seed, first + k)
        lines = {caption: _wrap(caption.raw, font, side) for caption in captions}
        short_captions = [caption for caption in captions if len(lines[caption]) <= LINES]
        shown_caption = max(short_captions or captions, key=lambda caption: len(caption.claims))
        for n, line in enumerate(lines[shown_caption]):
            pen.text((x + side / 2, y + side + 6 + n * LINE), line, fill=(60, 60, 68), font=font, anchor="ma")
    return picture


def _wrap(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        candidate = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], candidate] if font.getlength(candidate) <= width else [*lines, word]
    return lines


def main() -> None:
    """Write a contact sheet of the drawn scenes that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.worlds.scenes", description=__doc__)
    parser.add_argument("--sheet", type=Path, required=True, help="PNG file to write")
    parser.add_argument("--seed", type=int, default=1, help="seed of the world (default: %(default)s)")
    parser.add_argument("--first", type=int, default=400, help="number of the first image (default: %(default)s)")
    options = parser.parse_args()
    if not 0 <= options.seed < SEEDS:
        raise UserError(f"--seed {options.seed}: give a whole number from 0 to 2^63 − 1")
    if not 0 <= options.first < MAX_IMAGES:
        raise UserError(f"--first {options.first}: give a whole number from 0 to {MAX_IMAGES - 1}")
    picture = draw_sheet(options.seed, options.first, columns=6, rows=3, side=176)
    with atomic_path(options.sheet) as path:
        picture.save(path, "PNG", optimize=True)


if __name__ == "__main__":
    sys.exit(run_command("pipeline.worlds.scenes", main))
