"""A data set as annotated: images, their splits and their captions."""

from __future__ import annotations

import itertools
import re
import sys
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from PIL import Image
from tqdm import tqdm

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.cores import count_cores
from pipeline.runtime.film_decoding import check_film, is_moving
from pipeline.runtime.untrusted import resolve_inside
from pipeline.vocabulary import Vocabulary

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True)
class AnnotatedCaption:
    """One annotator's caption of one image, as text and as words."""

    text: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CorpusImage:
    """An image, its file (relative to the images' folder) and all its captions."""

    id: str
    file: str
    split: str  # train | val | test
    captions: tuple[AnnotatedCaption, ...]


class AttachedTexts(Protocol):
    """Further annotated texts, whose words are counted for the vocabulary."""

    def texts(self, mask: Sequence[bool]) -> Iterator[tuple[str, ...]]:
        """Yield the words of each text about the images of `mask` (M,) bool, as often as the text occurs."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A data set as annotated, in the order of its annotations."""

    name: str
    images: tuple[CorpusImage, ...]
    sources: tuple[Path, ...]  # annotation files of the data set
    restval: int | None = None  # number of train images that the file calls restval; None for a format without restval
    skipped: tuple[CorpusImage, ...] = ()  # annotated, but missing or not decodable; see `check_images`
    vocabulary: Vocabulary | None = None  # the annotations' own vocabulary, if any
    max_caption_words: int | None = None  # maximum number of words to which the annotations' captions were cut
    attached: AttachedTexts | None = None  # a slice's annotations of the images

    def counts(self) -> dict[str, int]:
        """Return the number of images in each split, without skipped images."""
        return {split: sum(image.split == split for image in self.images) for split in SPLITS}


def tokenise(text: str) -> tuple[str, ...]:
    """Return lower-case words without punctuation, as in Karpathy's files: hyphens separate words, apostrophes do not.

    Combining marks (vowels of Devanagari or Thai, accents) belong to the word that they follow. Marks without a letter
    before them, as after an emoji, are not words.
    """
    text = unicodedata.normalize("NFC", text.lower())
    marks = "" if text.isascii() else "".join({c for c in text if unicodedata.category(c)[0] == "M"})
    letters = f"[^\\W_](?:[^\\W_]|[{marks}])*" if marks else r"[^\W_]+"
    return tuple(re.findall(f"{letters}(?:['’]{letters})*", text))


def check_images(
    images: Path, files: Collection[str], corrupt: Collection[str] = (), missing: float = 0.0
) -> list[str]:
    """Decode every image, and films to their last frame, in threads; return the files to skip.

    The files of `corrupt` that are absent or cannot be decoded are skipped. A share of at most `missing` of all files
    may also be absent or not decodable, with a warning on stderr. Raises UserError for the first image beyond that
    share, and for a file outside the folder `images`.
    """
    skipped: list[str] = []
    faults: list[str] = []
    total = len(files)
    with ThreadPoolExecutor(count_cores()) as pool, tqdm(desc="checking images", unit="", disable=None) as bar:
        remaining = iter(files)
        while chunk := list(itertools.islice(remaining, 512)):
            problems = pool.map(lambda file: _find_image_problem(resolve_inside(images, file)), chunk)
            for file, problem in zip(chunk, problems, strict=True):
                if problem and file not in corrupt:
                    faults.append(problem)
                    if len(faults) / total > missing:
                        share = f"prepare.max_missing_share, {missing:g}"
                        excess = f"; with it, {len(faults)} of {total} images are left out, more than {share}"
                        raise UserError(problem + (excess if missing else ""))
                    skipped.append(file)
                elif problem:
                    tqdm.write(f"warning: skipped an image that is known to be corrupt: {problem}", file=sys.stderr)
                    skipped.append(file)
            bar.update(len(chunk))
    if faults:
        warning = (
            f"warning: {len(faults)} of {total} images are missing or cannot be decoded, and are left out: {faults[0]}"
        )
        tqdm.write(warning + (f"; and {len(faults) - 1} more" if len(faults) > 1 else ""), file=sys.stderr)
    return skipped


def _find_image_problem(path: Path) -> str | None:
    try:
        if path.stat().st_size == 0:
            return f"{path}: the image file is empty (zero bytes); fetch it again"
        if is_moving(path):
            check_film(path)
            return None
        with Image.open(path) as image:
            image.draft("RGB", (max(image.width // 8, 1), max(image.height // 8, 1)))  # faster, and all bytes are read
            image.load()
    except FileNotFoundError:
        return f"{path}: the image is missing, but the annotations name it; fetch it"
    except UserError as error:
        return str(error)
    except Exception as error:  # damaged files raise errors of any type
        if _is_heic(path):
            return f"{path}: a HEIC photo, which cannot be read here; convert it to JPEG and name the JPEG file"
        fault = summarise_error(error, 1000).replace(str(path), path.name)
        return f"{path}: the image cannot be decoded ({fault}); fetch it again"
    return None


def _is_heic(path: Path) -> bool:
    """Return whether a file starts with a HEIC header, as phone photos do, whatever its name."""
    try:
        with open(path, "rb") as file:
            head = file.read(12)
    except OSError:  # a folder, or a name that is too long
        return False
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
