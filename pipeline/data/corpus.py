"""A data set as annotated: images, their splits and their captions."""

from __future__ import annotations

import itertools
import os
import re
import sys
import unicodedata
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from pipeline.data.dialogs import Dialogs
from pipeline.errors import UserError, reason
from pipeline.runtime.films import moves, watch
from pipeline.runtime.untrusted import inside
from pipeline.vocabulary import Vocabulary

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class Caption:
    """What one annotator wrote of one image."""

    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """An image, its file (relative to the images' folder) and all its captions."""

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
    restval: int | None = None  # images of train that the file calls restval; None in forms without such a split
    skipped: tuple[Image, ...] = ()  # annotated, but known to be corrupt, and cannot be decoded; or missing
    vocabulary: Vocabulary | None = None  # of the annotations, where they have one
    cut: int | None = None  # words after which the annotations' captions were cut
    dialogs: Dialogs | None = None  # one about each image

    def counts(self) -> dict[str, int]:
        """Images in each split, without those that are skipped."""
        return {split: sum(image.split == split for image in self.images) for split in SPLITS}


def tokenise(text: str) -> tuple[str, ...]:
    """Lower-case words without punctuation, as in Karpathy's files: hyphens separate words, apostrophes do not.

    Combining marks (vowels of Devanagari or Thai, accents that stand alone) belong to their word.
    """
    text = unicodedata.normalize("NFC", text.lower())
    marks = "" if text.isascii() else "".join({c for c in text if unicodedata.category(c)[0] == "M"})
    letters = f"(?:[^\\W_]|[{marks}])+" if marks else r"[^\W_]+"
    return tuple(re.findall(f"{letters}(?:['’]{letters})*", text))


def check_images(
    images: Path, files: Collection[str], corrupt: Collection[str] = (), missing: float = 0.0
) -> list[str]:
    """Decode every image once, in threads, films to their last frame; those that are left out are returned.

    These are those of `corrupt` that cannot be decoded, and a share `missing` of all, at most, that are not there or
    cannot be decoded, with a warning on stderr. UserError names the first image beyond that.
    """
    skipped: list[str] = []
    lost: list[str] = []
    total = len(files)
    with ThreadPoolExecutor(os.cpu_count()) as pool, tqdm(desc="checking images", unit="", disable=None) as bar:
        remaining = iter(files)
        while some := list(itertools.islice(remaining, 512)):
            problems = pool.map(lambda file: _image_problem(inside(images, file)), some)
            for file, problem in zip(some, problems, strict=True):
                if problem and file not in corrupt:
                    lost.append(problem)
                    if len(lost) > missing * total:
                        most = f"; with it {len(lost)} of {total} are left out, more than the share prepare.missing"
                        raise UserError(problem + (f"{most}, {missing:g}" if missing else ""))
                    skipped.append(file)
                elif problem:
                    tqdm.write(f"warning: skipped, as it is known to be corrupt: {problem}", file=sys.stderr)
                    skipped.append(file)
            bar.update(len(some))
    if lost:
        said = f"warning: {len(lost)} of {total} images are missing or cannot be decoded, and left out: {lost[0]}"
        tqdm.write(said + (f"; and {len(lost) - 1} more" if len(lost) > 1 else ""), file=sys.stderr)
    return skipped


def _image_problem(path: Path) -> str | None:
    from PIL import Image as Pillow

    try:
        if path.stat().st_size == 0:
            return f"{path}: the image file is empty (zero bytes); fetch it again"
        if moves(path):
            watch(path)
            return None
        with Pillow.open(path) as image:
            image.draft("RGB", (max(image.width // 8, 1), max(image.height // 8, 1)))  # faster, and all bytes are read
            image.load()
    except FileNotFoundError:
        return f"{path}: the image is missing; the annotations name it"
    except UserError as error:
        return str(error)
    except Exception as error:  # decoders of damaged files raise nearly anything
        if _is_heic(path):
            return f"{path}: a HEIC photo, which cannot be read here; convert it to JPEG and name that file"
        why = reason(error, 1000).replace(str(path), path.name)
        return f"{path}: the image cannot be decoded ({why}); fetch it again"
    return None


def _is_heic(path: Path) -> bool:
    """Whether a file, whatever its name, begins as the photos of many phones do."""
    with open(path, "rb") as file:
        head = file.read(12)
    return head[4:8] == b"ftyp" and head[8:12] in (
        b"heic",
        b"heix",
        b"heim",
        b"heis",
        b"hevc",
        b"hevx",
        b"mif1",
        b"msf1",
    )
