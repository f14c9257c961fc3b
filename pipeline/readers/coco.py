"""COCO's own caption annotations."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.data.corpus import Corpus, Image
from pipeline.errors import UserError
from pipeline.readers.annotation_file import Once, Place, get, load, rows_of
from pipeline.readers.checks import Known, caption_of, checked
from pipeline.readers.splits import Splits, read_splits, split_of

SplitOf = Callable[[Mapping[str, Any], Place], str | None]  # an image's row and place → its split, or None: left out


def read_coco(
    annotations: Path | Sequence[Path] | Mapping[str, Path],
    images: Path | None,
    splits: Path | None = None,
    known: Known = Known(),
) -> Corpus:
    """Read COCO caption annotations (pycocotools) and open every image, where there are any.

    `annotations` is one file a split, {split: file}, or one or several files that are merged, with `splits` beside them
    (`read_splits` says in which forms). Images that `splits` does not name are left out. An image called
    COCO_train2014_… lies in `images`/train2014, another one of `captions_train2017.json` in `images`/train2017, where
    there is such a folder. Raises UserError as `read_karpathy`.
    """
    ids = Once("image id")
    if isinstance(annotations, Mapping):
        if splits is not None:
            raise UserError("splits: give either one annotation file a split or a file of splits, not both")
        sources = tuple(Path(file) for file in annotations.values())
        read = [image for split, file in annotations.items() for image in _images(Path(file), images, ids, _all(split))]
        return checked(Corpus(sources[0].stem, tuple(read), sources), images, known)
    files = [Path(file) for file in ([annotations] if isinstance(annotations, str | Path) else annotations)]
    if splits is None:
        raise UserError(f"{files[0]}: a COCO file says nothing of splits; give {{split: file}} or a split file")
    chosen = read_splits(Path(splits))
    used: set[str] = set()
    read = [image for file in files for image in _images(file, images, ids, _named(chosen, used))]
    if lost := [name for name in chosen.named if name not in used]:
        raise UserError(
            f"{splits}: {len(lost)} of its images, {lost[0]} the first, are not in {', '.join(f.name for f in files)}; "
            "give all annotation files (train2014 and val2014, say)"
        )
    return checked(Corpus(files[0].stem, tuple(read), (*files, Path(splits)), chosen.restval), images, known)


def _all(split: str) -> SplitOf:
    return lambda row, place: split_of(split, place)


def _named(splits: Splits, used: set[str]) -> SplitOf:
    """Find an image's split by its id or file name; the names that were found are added to `used`."""

    def split(row: Mapping[str, Any], place: Place) -> str | None:
        for name in (str(row["id"]), row["file_name"], Path(row["file_name"]).name):
            if name in splits.named:
                used.add(name)
                return splits.named[name]
        return None

    return split


def _images(file: Path, images: Path | None, ids: Once, split_of_row: SplitOf) -> Iterator[Image]:
    """The images of one file that have a split, in its order; `ids` knows those of the files before."""
    from pycocotools.coco import COCO

    text, data = load(file)
    rows, annotations = rows_of(data, "images", file), rows_of(data, "annotations", file)
    own: set[int | str] = set()
    files, caption_ids = Once("image file"), Once("caption id")
    for index, row in enumerate(rows):
        place = Place(file, text, "images", index)
        ids.add(get(row, "id", int | str, place), place)
        files.add(get(row, "file_name", str, place), place)
        own.add(row["id"])
    for index, row in enumerate(annotations):
        place = Place(file, text, "annotations", index)
        caption_ids.add(get(row, "id", int | str, place), place)
        if get(row, "image_id", int | str, place) not in own:
            place.fail(f"the caption is of image {row['image_id']}, which is not among the images")
    coco = COCO()
    coco.dataset = data
    with contextlib.redirect_stdout(io.StringIO()):  # it announces its progress
        coco.createIndex()
    numbers = {row["id"]: index for index, row in enumerate(annotations)}
    folders = {folder.name for folder in images.iterdir() if folder.is_dir()} if images and images.is_dir() else set()
    for index, row in enumerate(rows):
        place = Place(file, text, "images", index)
        split = split_of_row(row, place)
        if split is None:
            continue
        captions = []
        for caption in coco.imgToAnns.get(row["id"], []):
            part = Place(file, text, "annotations", numbers[caption["id"]])
            captions.append(caption_of(get(caption, "caption", str, part), None, part))
        if not captions:
            place.fail(f"image {row['file_name']} has no captions")
        yield Image(str(row["id"]), _path(row["file_name"], file, folders), split, tuple(captions))


def _path(name: str, file: Path, folders: set[str]) -> str:
    """Where an image lies below the images' folder, whose folders are `folders`."""
    own = re.match(r"COCO_([a-z]+\d{4})_", name)
    folder = own[1] if own else file.stem.rpartition("_")[2]
    return (Path(folder if folder in folders else "") / name).as_posix()
