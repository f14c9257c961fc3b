"""Judging of many captions, each of one photo: processor time, and memory compared with the full score matrix.

    python benchmarks/judging.py

Photos of 8 × 8 random pixels replace real ones, and random vectors replace the judge's embeddings. The times exclude
networks: they cover hard galleries, ranks in both directions, text scores and intervals. The second run reads all
embeddings from the cache. Each run has a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from PIL import Image
from printing import begin_table, show_progress
from torch.nn.functional import normalize

import saywhich
from saywhich.judging.clip_metrics import ClipMetric
from saywhich.judging.photo_vectors import PreparedPhoto
from saywhich.photos import Photo

GALLERY_IMAGES = 10
WORDS = ("red", "green", "blue", "small", "large", "dog", "cat", "boat", "house", "tree")


class RandomJudge:
    """A judge with random embeddings: photo n and caption n have similar embeddings."""

    name, temperature = "drawn", 0.07
    metric: ClipMetric | None = None

    def __init__(self, images: int, size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._photos = normalize(torch.randn(images, size, generator=generator), dim=1)
        self._captions = normalize(self._photos + torch.randn(images, size, generator=generator) / 4, dim=1)
        self.size, self.digest = size, f"drawn {images} {size}"

    def prepare(self, photo: Photo) -> PreparedPhoto:
        return {"number": torch.tensor([int(Path(str(photo)).stem)])}

    def encode_photos(self, prepared: Sequence[PreparedPhoto]) -> np.ndarray:
        return self._photos[torch.cat([each["number"] for each in prepared])].numpy()

    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        # the last word is the photo's number; captions of saywhich's trivial rule have none
        last_words = (text.rpartition(" ")[2] for text in texts)
        return self._captions[[int(word) if word.isdecimal() else 0 for word in last_words]]

    def find_truncated(self, texts: Sequence[str]) -> list[str]:
        return []

    def find_unknown(self, texts: Sequence[str]) -> list[str]:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--size", type=int, default=64, help="size of the judge's embeddings")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # folder of one measured run
    options = parser.parse_args()
    if options.folder:
        print(json.dumps(_measure(options.folder, options.images[0], options.size)))
        return
    print_row = begin_table(
        f"Judging of captions by embeddings of size {options.size}",
        "images", "run", "processor, s", "peak memory, GB", "all scores at once, GB", first=8,
    )  # fmt: skip
    for images in options.images:
        with TemporaryDirectory() as folder:
            show_progress(f"drawing {images:,} photos")
            _draw_photos(Path(folder) / "photos", images)
            for run in ("first", "second"):
                show_progress(f"the {run} run")
                command = [sys.executable, __file__, "--images", str(images), "--size", str(options.size)]
                process = subprocess.run(
                    [*command, "--folder", folder],
                    env={**os.environ, "XDG_CACHE_HOME": f"{folder}/cache", "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                usage = json.loads(process.stdout)
                memory = f"{usage['bytes'] / 1e9:.2f}", f"{8 * images**2 / 1e9:,.1f}"
                print_row(f"{images:,}", run, f"{usage['seconds']:,.0f}", *memory)


def _draw_photos(folder: Path, images: int) -> None:
    folder.mkdir()
    pixels = np.random.Generator(np.random.Philox(key=0))
    for number in range(images):
        photo = pixels.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(photo).save(folder / f"{number}.png", compress_level=1)


def _measure(folder: Path, images: int, size: int) -> dict[str, float]:
    """Judge a caption of each photo; return processor seconds, and bytes of the process at its peak."""
    words = np.random.Generator(np.random.Philox(key=1)).integers(len(WORDS), size=(images, 6))
    captions = {
        f"{number}.png": " ".join([*(WORDS[word] for word in row), str(number)])
        for number, row in enumerate(words.tolist())
    }
    began = time.process_time()
    result = saywhich.judge(captions, folder / "photos", judges=[RandomJudge(images, size)], hard=GALLERY_IMAGES)
    assert len(result.files) == images
    assert result.rows[0].value("drawn", "R@1 (hard)") > 50
    return {"seconds": time.process_time() - began, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


if __name__ == "__main__":
    main()
