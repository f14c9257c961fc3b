"""Reader of COCO's caption annotations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.data.corpus import SPLITS, Corpus, CorpusImage
from pipeline.errors import UserError
from pipeline.readers.annotation_file import JsonEntry, JsonFile, UniqueNames, show_json
from pipeline.readers.checks import make_caption
from pipeline.readers.corpus_format import CorpusFormat, CorpusSource
from pipeline.readers.splits import parse_split, read_splits


def read_coco(
    annotations: Sequence[Path] | Mapping[str, Path], images: Path | None, splits: Path | None = None
) -> Corpus:
    """Read COCO caption annotations.

    `annotations` is one file per split, {split: file}, or one or more files to merge, with a file of `splits` (see
    `read_splits` for its forms). Images that `splits` does not name are omitted. An image named COCO_train2014_… is in
    the folder train2014 of `images`, if there is one. Other images of `captions_train2017.json` are in train2017, if
    there is one. All others are directly in `images`. Raises UserError, with the file and an entry's position, for
    damaged or inconsistent files. Raises UserError where no file is given, and unless splits are given exactly once.
    """
    if not annotations:
        raise UserError("annotations: no file is given; give {split: file}, or a list of files and a split file")
    if isinstance(annotations, Mapping):
        if splits is not None:
            raise UserError("splits: got both one annotation file per split and a file of splits; give one of them")
        files = [(Path(file), split) for split, file in annotations.items()]
    else:
        files = [(Path(file), "") for file in annotations]
        if splits is None:
            raise UserError(f"{files[0][0]}: a COCO file names no splits; give {{split: file}} or a split file")
    split_file = None if splits is None else read_splits(Path(splits))
    folders = {folder.name for folder in images.iterdir() if folder.is_dir()} if images and images.is_dir() else set()
    ids, used_names, corpus_images = UniqueNames("image id"), set(), []
    for file, split in files:
        for row, annotated in _read_annotated_images(file, ids):
            name = row.value["file_name"]
            if split_file:
                keys = [key for key in (str(row.value["id"]), name, Path(name).name) if key in split_file.by_image]
                if not keys:
                    continue
                if len(image_splits := {split_file.by_image[key] for key in keys}) > 1:
                    row.fail(
                        f"{splits} names this image twice, for the splits {' and '.join(sorted(image_splits))}; "
                        "remove one of the names"
                    )
                used_names.update(keys)
                split = split_file.by_image[keys[0]]
            split = parse_split(split, row)
            captions = [make_caption(each.get("caption", str), None, each) for each in annotated]
            if not captions:
                row.fail(f"image {name} has no captions; remove the image or add a caption")
            path = _build_path(name, file, folders)
            corpus_images.append(CorpusImage(str(row.value["id"]), path, split, tuple(captions)))
    sources = tuple(file for file, _ in files)
    if split_file and (missing := [name for name in split_file.by_image if name not in used_names]):
        names = ", ".join(file.name for file in sources)
        raise UserError(
            f"{splits}: {len(missing)} of its images, such as {missing[0]}, are not in {names}; "
            "give all annotation files, for example train2014 and val2014"
        )
    name, restval = sources[0].stem, split_file.restval if split_file else None
    return Corpus(name, tuple(corpus_images), (*sources, *([Path(splits)] if splits else [])), restval)


def _read_annotated_images(file: Path, ids: UniqueNames) -> Iterator[tuple[JsonEntry, list[JsonEntry]]]:
    """Return the images of one file, each with its annotations, and add the images' ids to `ids`.

    Raises UserError with file and position, for instance where an id is in `ids` already.
    """
    source = JsonFile(file)
    rows, annotations = source.entries("images"), source.entries("annotations")
    files, caption_ids = UniqueNames("image file"), UniqueNames("caption id")
    captions_by_image: dict[int | str, list[JsonEntry]] = {}
    for row in rows:
        image = row.get("id", int | str)
        ids.add(image, row)
        files.add(row.get("file_name", str), row)
        captions_by_image[image] = []
    for annotation in annotations:
        caption_ids.add(annotation.get("id", int | str), annotation)
        image = annotation.get("image_id", int | str)
        if image not in captions_by_image:
            annotation.fail(
                f"the caption is of image {show_json(image)}, which is not among the images; add it to the images"
            )
        captions_by_image[image].append(annotation)
    return ((row, captions_by_image[row.value["id"]]) for row in rows)


def _build_path(name: str, file: Path, folders: set[str]) -> str:
    """Return the path of an image below the images' folder, which has the subfolders `folders`."""
    match = re.match(r"COCO_([a-z]+\d{4})_", name)
    folder = match[1] if match else file.stem.rpartition("_")[2]
    return (Path(folder if folder in folders else "") / name).as_posix()


def _fits(source: CorpusSource) -> bool:
    if isinstance(source.annotations, Mapping):
        return bool(source.files) and source.files.keys() <= set(SPLITS) and not source.given
    return source.given == {"splits"}


def _read(source: CorpusSource) -> Corpus:
    if isinstance(source.annotations, Mapping):
        return read_coco(source.files, source.images)
    files = [source.annotations] if isinstance(source.annotations, str) else source.annotations
    splits = None if source.splits is None else source.root / source.splits
    return read_coco([source.root / file for file in files], source.images, splits)


COCO = CorpusFormat(
    "coco",
    "format coco takes annotations {train: file, val: …, test: …}, or annotations [file, …] and splits: file",
    _fits,
    _read,
)
