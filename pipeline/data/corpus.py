"""A data set as annotated: images, their splits and their captions."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.vocabulary import Vocabulary

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Caption:
    """What one annotator wrote of one image."""

    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """An image, where it lies (relative to the images' folder) and all its captions."""

    id: str
    file: str
    split: str  # train | val | test
    captions: tuple[Caption, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A data set as annotated, in the order of its annotations."""

    name: str
    images: tuple[Image, ...]
    sources: tuple[Path, ...]  # the annotation files it was read from
    vocabulary: Vocabulary | None = None  # where the annotations bring their own
    cut: int | None = None  # words after which the annotations' captions were cut, where they were

    def counts(self) -> dict[str, int]:
        """Images in each split."""
        return {split: sum(image.split == split for image in self.images) for split in SPLITS}


def tokenise(text: str) -> tuple[str, ...]:
    """Lower-case words without punctuation, as Karpathy's files have them: hyphens part words, apostrophes do not."""
    return tuple(re.findall(r"[^\W_]+(?:['’][^\W_]+)*", text.lower()))


def check_images(images: Path, files: Iterable[str]) -> None:
    """Decode every image once, in threads; UserError names the first that is missing or cannot be decoded."""
    with ThreadPoolExecutor(os.cpu_count()) as pool, tqdm(desc="checking images", unit="", disable=None) as bar:
        files = iter(files)
        while some := list(itertools.islice(files, 512)):
            for problem in pool.map(lambda file: _image_problem(images / file), some):
                if problem:
                    raise UserError(problem)
            bar.update(len(some))


def _image_problem(path: Path) -> str | None:
    from PIL import Image as Pillow

    try:
        if path.stat().st_size == 0:
            return f"{path}: the image file is empty (zero bytes); fetch it again"
        with Pillow.open(path) as image:
            image.draft("RGB", (image.width // 8, image.height // 8))  # an eighth is decoded faster, all bytes are read
            image.load()
    except FileNotFoundError:
        return f"{path}: the image is missing; the annotations name it"
    except (OSError, SyntaxError, ValueError, Pillow.DecompressionBombError) as error:
        reason = str(error).replace(str(path), path.name).splitlines()[0]
        return f"{path}: the image cannot be decoded ({reason}); fetch it again"
    return None
