"""Reader of a user's own photos and films: a folder of images and a table of captions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from pipeline.data.corpus import SPLITS, AnnotatedCaption, Corpus, CorpusImage
from pipeline.errors import UserError, escape_line
from pipeline.readers.annotation_file import FileRow, show_json
from pipeline.readers.checks import make_caption
from pipeline.readers.corpus_format import CorpusFormat
from pipeline.readers.splits import draw_split, parse_split
from pipeline.readers.table_files import read_rows
from pipeline.runtime.film_decoding import CONTAINERS
from pipeline.runtime.untrusted import leads_outside

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif")
PHOTO_EXTENSIONS = frozenset((*IMAGE_EXTENSIONS, *CONTAINERS))
MIN_PHOTOS = 2 * len(SPLITS)  # a listener needs two photos in each split
# ten characters without a blank, in scripts without blanks between words (Thai, Lao, Myanmar, Khmer, kana, Han)
UNBROKEN = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]{10,}")


def read_folder(table: Path, images: Path | None, shares: Mapping[str, float] | None = None) -> Corpus:
    """Read a CSV, TSV, JSON Lines or Parquet table of `file, caption`, a row per caption.

    `file` is relative to the folder `images`; the rows of an image need not be consecutive. The column `split` (train,
    val, test; equal in all rows of an image) is optional. Without it `shares` (val, test, seed) determine random
    splits, see `draw_split`. Images are in the order of their first rows. A warning on stderr reports photos below
    `images` without a row. Raises UserError with file and row (a CSV's header is row 1; blank lines do not count).
    """
    table = Path(table)
    rows: dict[str, FileRow] = {}
    captions: dict[str, dict[AnnotatedCaption, FileRow]] = {}
    splits: dict[str, str] = {}
    for row, values in read_rows(table):
        file, split = _normalise_path(values["file"], row), values.get("split")
        if file not in rows:
            if images and not os.path.isfile(images / file):  # also False for a name that cannot be a path
                row.fail(f"the image {show_json(file)} is missing in {images}{_suggest_file(file, images)}")
            rows[file], captions[file] = row, {}
            splits[file] = "" if split is None else parse_split(split, row)
        elif split is not None and parse_split(split, row) != splits[file]:
            row.fail(f"{file} is in the split {split} here, and in {splits[file]} at {rows[file]}; write one split")
        if UNBROKEN.search(values["caption"]):
            row.fail(
                "the caption has no blanks between its words, so that it would be one word "
                f"({show_json(values['caption'])}); put blanks between words"
            )
        caption = make_caption(values["caption"], None, row)
        if caption in captions[file]:
            row.fail(
                f"{file} has the same caption at {captions[file][caption]}; remove one ({show_json(caption.text)})"
            )
        captions[file][caption] = row
    if len(rows) < MIN_PHOTOS:
        raise UserError(
            f"{table}: the table has captions of {len(rows)} photo{'s' * (len(rows) > 1)}; {MIN_PHOTOS} are needed, "
            "two for each split, and 60 or more are advisable; add rows"
        )
    if images:
        _warn_of_photos_without_row(table, images, rows.keys())
    if not any(splits.values()):
        splits = _draw_splits(table, list(rows), shares)
    elif small := _find_small_splits(splits.values()):
        raise UserError(
            f"{table}: fewer than two of {len(splits)} images are in {small[0]}; each split needs two or more: add "
            "images to it"
        )
    corpus_images = tuple(CorpusImage(file, file, splits[file], tuple(captions[file])) for file in rows)
    return Corpus(table.stem, corpus_images, (table,))


def _suggest_file(file: str, images: Path) -> str:
    """Return the remedy for a missing file: the name of a file with a similar name if there is one."""
    if "\\" in file and os.path.isfile(images / file.replace("\\", "/")):
        return f"; {file.replace(chr(92), '/')} exists: write / in place of \\"
    path = images / file
    try:
        similar = [sibling.name for sibling in path.parent.iterdir() if sibling.stem.lower() == path.stem.lower()]
    except OSError:  # the folder does not exist either
        similar = []
    names = ", ".join(map(show_json, sorted(similar)))
    return f"; {names} exists: write that name" if similar else "; put it there, or correct the name"


def _warn_of_photos_without_row(table: Path, images: Path, known_files: Collection[str]) -> None:
    paths = (path for path in images.rglob("*") if path.suffix.lower() in PHOTO_EXTENSIONS and path.is_file())
    files = sorted({path.relative_to(images).as_posix() for path in paths} - set(known_files))
    if files:
        print(
            f"warning: {table}: {len(files)} of the photos in {images} have no row, such as {escape_line(files[0])}; "
            "they are left out; add rows to use them",
            file=sys.stderr,
        )


def _normalise_path(name: str, row: FileRow) -> str:
    """Return `name` as a normalised path relative to the images' folder; raises UserError if it leads outside."""
    if leads_outside(name):
        row.fail(
            f"the file {show_json(name)} lies outside the folder of images; write it relative to that folder, "
            "without .."
        )
    return PurePosixPath(name).as_posix()


def _draw_splits(table: Path, files: list[str], shares: Mapping[str, float] | None) -> dict[str, str]:
    if shares is None:
        raise UserError(
            f"{table}, row 1: there is no column split; add one (train, val, test), or set prepare.shares, "
            "{val: 0.1, test: 0.1, seed: 0}"
        )

    def draw(seed: int) -> dict[str, str]:
        return {file: draw_split(file, shares["val"], shares["test"], seed) for file in files}

    splits = draw(int(shares["seed"]))
    if small := _find_small_splits(splits.values()):
        other_seed = next((other for other in range(100) if not _find_small_splits(draw(other).values())), None)
        hint = "" if other_seed is None else f"with seed: {other_seed} each split has two or more; or "
        raise UserError(
            f"{table}: the random draw puts fewer than two of {len(files)} images in {small[0]}, and two are needed; "
            f"{hint}give larger shares, or a column split (train, val, test)"
        )
    return splits


def _find_small_splits(splits: Collection[str]) -> list[str]:
    """Return the splits with fewer than two images: a listener must distinguish images."""
    return [split for split in SPLITS if sum(other == split for other in splits) < 2]


FOLDER = CorpusFormat(
    "folder",
    "format folder takes annotations: table, and shares (no splits) where the table has no column split",
    lambda source: isinstance(source.annotations, str) and source.given <= {"shares"},
    lambda source: read_folder(source.file, source.images, source.shares),
    may_miss_images=False,
)
