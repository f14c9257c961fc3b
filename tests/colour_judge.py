"""A judge whose numbers can be computed by hand, from mean colours of photos and colour words of captions.

`python tests/colour_judge.py` prints the example of docs/judge.md.
"""

import contextlib
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import normalize

from saywhich.cli import main
from saywhich.judging import judge_sources
from saywhich.judging.clip_metrics import CLIP_SCORE
from saywhich.judging.judge_sources import JudgeSource
from saywhich.photos import open_photo

OPTIONS = ("--images", "photos", "--judge", "colours")  # options of the example's commands
COLOURS = ("red", "green", "blue")


class ColourJudge:
    """A judge that embeds photos by their mean colour and captions by the counts of their colour words."""

    digest, size, metric = "colours", 3, CLIP_SCORE

    def __init__(self, name: str = "colours") -> None:
        self.name = name

    def prepare(self, photo: Path):
        with open_photo(photo, 4) as image:
            return {"pixels": torch.from_numpy(np.asarray(image).copy())}

    def encode_photos(self, prepared):
        means = torch.stack([each["pixels"].double().mean((0, 1)) for each in prepared])
        return normalize(means, dim=1).float().numpy()

    def encode_texts(self, texts):
        counts = [[text.split().count(colour) for colour in COLOURS] for text in texts]
        return normalize(torch.tensor(counts, dtype=torch.float64), dim=1).float()

    def find_truncated(self, texts):
        return [text for text in texts if len(text.split()) > 20]

    def find_unknown(self, texts):
        return [text for text in texts if text and not set(COLOURS) & set(text.split())]


def paint_colours(folder: Path) -> None:
    """Paint three photos: a is red, b is green, and c is half red and half green."""
    folder.mkdir()
    pixels = np.zeros((3, 8, 8, 3), np.uint8)
    pixels[0, ..., 0] = pixels[1, ..., 1] = 255
    pixels[2, :4, :, 0] = pixels[2, 4:, :, 1] = 255
    for name, photo in zip("abc", pixels, strict=True):
        Image.fromarray(photo).save(folder / f"{name}.png")


def write_example(folder: Path) -> None:
    """Write forty photos, and captions with the strongest colour (before.json) or the two strongest (after.json)."""
    shares = np.random.Generator(np.random.Philox(key=7)).dirichlet((0.8, 0.8, 0.8), 40)
    (folder / "photos").mkdir()
    before, after = {}, {}
    for number, share in enumerate(shares):
        name, first, second = f"{number:02}.png", *np.argsort(-share)[:2].tolist()
        Image.new("RGB", (16, 16), tuple((255 * share).round().astype(int).tolist())).save(folder / "photos" / name)
        before[name] = f"a {COLOURS[first]} wall"
        times = max(1, round(share[first] / max(share[second], 0.1)))
        after[name] = f"a {' '.join([COLOURS[first]] * times)} wall with some {COLOURS[second]}"
    for file, captions in (("before", before), ("after", after)):
        (folder / f"{file}.json").write_text(json.dumps(captions))


def print_example(folder: Path) -> None:
    """Write the example into `folder`, and print the output of `saywhich judge` and `compare` on it."""
    write_example(folder)
    commands = ["judge", "after.json"], ["compare", "before.json", "after.json"]
    with contextlib.chdir(folder):
        for command in commands:
            print("$ saywhich", *command, *OPTIONS)
            assert main([*command, *OPTIONS]) == 0


if __name__ == "__main__":
    judge_sources.JUDGES = (JudgeSource(lambda name: name == "colours", lambda name: ColourJudge()),)
    with tempfile.TemporaryDirectory() as example:
        print_example(Path(example))
