"""Readers of caption files and references of any captioner; nothing in the files is executed.

The forms are COCO's results and annotations, Karpathy's files, {file: caption} or {file: [captions]}, Flickr's token
files, and tables in CSV, JSON Lines or Parquet.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.config.reading import show_value
from pipeline.errors import UserError
from pipeline.readers.annotation_file import iterate_lines, show_json
from pipeline.readers.table_files import READERS, SPREADSHEETS, read_texts
from pipeline.runtime.records import parse_json, read_bytes
from saywhich.judging.notes import Notes

MAX_JSON_BYTES = 2 * 2**30  # bytes of a JSON file
MAX_ID_DIGITS = 18  # maximum digits of a number that names an image
TOKEN_FILES = (".txt", ".token")  # extensions of Flickr8k's and Flickr30k's captions
TOKEN_LINE = re.compile(r"(?P<image>[^\t]+)#[0-9]+\t(?P<caption>.*)")
FORMS = (
    "COCO's results [{image_id, caption}], COCO's or Karpathy's annotations, {file: caption}, {file: [captions]}, "
    "Flickr's token files (.txt, .token), or a table with the columns file (or image_id) and caption in .csv, .tsv, "
    ".jsonl or .parquet"
)
FILE_KEYS = ("file", "image", "filename", "file_name", "filepath")  # names of an image's file, in this order
ID_KEYS = ("image_id", "id", "cocoid")

ImageKey = str | int  # the name of an image's file with or without its folder and extension, or COCO's id
Source = str | Path | Mapping[str, "str | Sequence[str]"]


@dataclass
class CaptionSet:
    """Captions by image, in the order of the file.

    `files` maps COCO's ids to the file names that the file itself gives. `numbered` maps the caption ids of a token
    file to captions.
    """

    name: str
    captions: dict[ImageKey, list[str]] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    numbered: dict[str, str] = field(default_factory=dict)

    def add(self, image: ImageKey, text: str, notes: Notes) -> None:
        """Add a caption; note an empty caption, and a caption that the image already has."""
        text = " ".join(text.split())
        captions = self.captions.setdefault(image, [])
        if not text:
            notes.add(f"empty captions in {self.name}, which count like others", image)
        elif text in captions:
            notes.add(f"captions that {self.name} gives twice for one image, and that count twice", image)
        captions.append(text)


def read_caption_set(source: Source, notes: Notes) -> CaptionSet:
    """Read captions or references of any form, from a file or a mapping {file: caption} or {file: [captions]}.

    Raises UserError where the form is unknown, an entry has no image or caption, or the file is missing or damaged.
    Raises UserError above 2 GiB of JSON, JSON Lines or Parquet text, and above 20,000,000 Parquet rows.
    Raises UserError where there are no captions, and for a mapping's key that is neither a text nor an integer.
    """
    if isinstance(source, Mapping):
        caption_set = CaptionSet("captions")
        _add_mapping(caption_set, source, "captions", notes)
    else:
        path = Path(source)
        caption_set = CaptionSet(path.name)
        for image, text in _read_entries(path, caption_set, notes):
            caption_set.add(image, text, notes)
    if not any(caption_set.captions.values()):
        raise UserError(f"{caption_set.name}: holds no captions; the forms are {FORMS}")
    return caption_set


def parse_number(text: str) -> int | None:
    """Return a text of at most 18 digits, such as COCO's ids, as a number; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_ID_DIGITS else None


def read_ids(path: Path) -> dict[int, str]:
    """Read a table of image_id and file, in CSV, JSON Lines or Parquet, or a JSON mapping {image_id: file}.

    Pairs without a file, or whose id is no whole number of at most 18 digits, are left out. Raises UserError where no
    pair remains, and for a missing or damaged file.
    """
    if path.suffix.lower() == ".json":
        document = parse_json(
            read_bytes(path, "give a mapping {image_id: file}", MAX_JSON_BYTES), str(path), "write it again"
        )
        pairs: Iterable[tuple[Any, Any]] = document.items() if isinstance(document, dict) else ()
    else:
        pairs = [
            (values["image_id"], values["file"])
            for _, values in read_texts(path, ("image_id", "file"), ("image_id", "file"))
        ]
    numbers = ((_parse_image_id(key), name) for key, name in pairs if isinstance(name, str) and name)
    files = {number: name for number, name in numbers if isinstance(number, int)}
    if not files:
        raise UserError(
            f"{path}: holds no pairs of image_id and file; give a table with these two columns, or a JSON mapping"
        )
    return files


def _read_entries(path: Path, caption_set: CaptionSet, notes: Notes) -> Iterator[tuple[ImageKey, str]]:
    """Yield each image and caption of a file; the captions of a mapping are added to `caption_set` instead.

    Raises UserError for a missing file, and for a form that is not in FORMS.
    """
    extension = path.suffix.lower()
    if extension == ".jsonl":
        yield from _read_rows(_read_json_lines(path), path)
    elif extension in TOKEN_FILES:
        yield from _read_token_lines(path, caption_set)
    elif extension != ".json":
        if extension in SPREADSHEETS:
            raise UserError(f"{path}: is a spreadsheet; save it as “CSV UTF-8” and give that file")
        if extension not in READERS:
            file_kind = f"the extension {extension!r}" if path.exists() else "no such file"
            kind = "a folder" if path.is_dir() else file_kind
            raise UserError(f"{path}: expected captions, found {kind}; the forms are {FORMS}")
        for row, values in read_texts(path, (*FILE_KEYS, "image_id", "caption"), ("caption",)):
            yield _require_image_key(values, f"{path}, {row}"), values["caption"]
    else:
        content = parse_json(read_bytes(path, "give another file", MAX_JSON_BYTES), str(path), f"the forms are {FORMS}")
        if isinstance(content, list):
            yield from _read_coco_results(content, path)
        elif isinstance(content, dict) and isinstance(content.get("images"), list):
            yield from _read_annotations(content, path, caption_set, notes)
        elif isinstance(content, dict) and not isinstance(content.get("annotations"), list):
            for key in _find_repeated_keys(read_bytes(path, "give another file", MAX_JSON_BYTES)):
                notes.add(f"images that {caption_set.name} lists more than once; only the last captions count", key)
            _add_mapping(caption_set, content, str(path), notes)
        elif isinstance(content, dict):
            yield from _read_rows(enumerate(content["annotations"], 1), path)
        else:
            raise UserError(f"{path}: holds {show_json(content)}; the forms are {FORMS}")


def _read_json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(read_bytes(path, "give another file", MAX_JSON_BYTES).split(b"\n"), 1):
        if line.strip():
            yield (
                number,
                parse_json(line, f"{path}, line {number}", "write one JSON object a line, with file and caption"),
            )


def _read_token_lines(path: Path, caption_set: CaptionSet) -> Iterator[tuple[ImageKey, str]]:
    """Yield each image and caption of a token file, and add its caption ids to `caption_set.numbered`.

    A line has an image's name, # and a number, a tab, and the caption.
    """
    for row, line in iterate_lines(path):
        if (match := TOKEN_LINE.fullmatch(line)) is None:
            row.fail(
                f"is {show_json(line)}, and NAME#NUMBER, a tab and a caption are expected; "
                "give a table the extension .csv"
            )
        caption_set.numbered[line.partition("\t")[0]] = " ".join(match["caption"].split())
        yield match["image"], match["caption"]


def _read_coco_results(content: list[Any], path: Path) -> Iterator[tuple[ImageKey, str]]:
    """Yield each image and caption of a list; COCO's results pass through pycocotools, as in COCO's own evaluation.

    A list with a file name in place of an id is read as a table.
    """
    rows = list(_read_rows(enumerate(content, 1), path))
    if rows and all(isinstance(image, int) for image, _ in rows):
        from pycocotools.coco import COCO

        annotations = COCO()
        annotations.dataset = {"images": [{"id": image} for image in dict.fromkeys(image for image, _ in rows)]}
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
            annotations.createIndex()
            results = annotations.loadRes([{"image_id": image, "caption": text} for image, text in rows])
        rows = [(each["image_id"], each["caption"]) for each in results.loadAnns(results.getAnnIds())]
    yield from rows


def _read_rows(entries: Iterable[tuple[int, Any]], path: Path) -> Iterator[tuple[ImageKey, str]]:
    """Yield the image and each caption of JSON objects with a file or image_id, and one or more captions.

    Raises UserError for any other object.
    """
    for number, entry in entries:
        location = f"{path}, entry {number}"
        if not isinstance(entry, dict) or not isinstance(entry.get("caption", entry.get("captions")), str | list):
            raise UserError(
                f"{location}: is {show_json(entry)}, and an object with a file and a caption is expected; "
                f"the forms are {FORMS}"
            )
        image = _require_image_key(entry, location)
        for text in _require_texts(entry.get("caption", entry.get("captions")), location):
            yield image, text


def _read_annotations(
    content: Mapping[str, Any], path: Path, caption_set: CaptionSet, notes: Notes
) -> Iterator[tuple[ImageKey, str]]:
    """Yield the captions of COCO's form (`images` and `annotations`) or of Karpathy's (`images` with `sentences`).

    Raises UserError for entries of another form.
    """
    keys: set[ImageKey] = set()
    for number, image in enumerate(content["images"]):
        location = f"{path}, images[{number}]"
        if not isinstance(image, dict):
            raise UserError(f"{location}: is {show_json(image)}, and an object is expected; the forms are {FORMS}")
        key = _require_image_key(image, location)
        if key in keys:
            notes.add(f"images that {caption_set.name} lists twice", key)
        keys.add(key)
        name, image_id = _find_file(image), next((each for each in _find_ids(image) if isinstance(each, int)), None)
        if name is not None and image_id is not None:
            caption_set.files[image_id] = name
        for sentence in _require_list(image.get("sentences"), f"{location}.sentences"):
            raw = sentence.get("raw") if isinstance(sentence, dict) else None
            for text in _require_texts(raw, f"{location}.sentences"):
                yield key, text
    yield from _read_rows(enumerate(_require_list(content.get("annotations"), f"{path}, annotations"), 1), path)


def _add_mapping(caption_set: CaptionSet, content: Mapping[Any, Any], location: str, notes: Notes) -> None:
    for image, texts in content.items():
        if not isinstance(image, str | int):
            raise UserError(
                f"{location}: expected a text or a whole number as key, got {show_value(image)}; "
                "name files with str(path)"
            )
        for text in _require_texts(texts, f"{location}, {show_json(image)}"):
            caption_set.add(image, text, notes)


def _require_list(value: Any, location: str) -> list[Any]:
    """Return a list, empty for None; raises UserError for anything else."""
    if not isinstance(value, list | None):
        raise UserError(f"{location}: is {show_json(value)}, and a list is expected; the forms are {FORMS}")
    return value or []


def _require_texts(value: Any, location: str) -> list[str]:
    """Return a caption, or a list of captions, as a list; raises UserError for anything else."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        text = show_value(value)
        raise UserError(
            f"{location}: is {text}, and a caption or a list of captions is expected; the forms are {FORMS}"
        )
    return list(texts)


def _require_image_key(entry: Mapping[str, Any], location: str) -> ImageKey:
    """Return the name of an entry's file, or else the image's id. Raises UserError for an entry with neither."""
    if (name := _find_file(entry)) is not None:
        return name
    if (image_id := next(_find_ids(entry), None)) is None:
        raise UserError(f"{location}: names no image; one of {', '.join((*FILE_KEYS[:3], ID_KEYS[0]))} is needed")
    return image_id


def _find_ids(entry: Mapping[str, Any]) -> Iterator[ImageKey]:
    """Yield the ids that an entry gives its image."""
    for key in ID_KEYS:
        value = entry.get(key)
        if isinstance(value, int | float | str) and not isinstance(value, bool) and value != "":
            yield _parse_image_id(value)


def _parse_image_id(value: float | str) -> ImageKey:
    """Return an integer, or a whole number of at most 18 digits in a text or float (42.0), as a number; else a text."""
    if isinstance(value, int):
        return value
    number = parse_number(str(value).removesuffix(".0"))  # a column with missing values has ids such as 42.0
    return str(value) if number is None else number


def _find_file(entry: Mapping[str, Any]) -> str | None:
    """Return the file that an entry names; Karpathy's entries have its folder in `filepath`."""
    if isinstance(entry.get("filename"), str) and isinstance(entry.get("filepath"), str):
        return (Path(entry["filepath"]) / entry["filename"]).as_posix()
    return next((entry[key] for key in FILE_KEYS if isinstance(entry.get(key), str) and entry[key]), None)


def _find_repeated_keys(content: bytes) -> list[str]:
    """Return the repeated keys of the file's objects, once per repetition; Python keeps a key's last value."""
    repeated_keys: list[str] = []

    def note_repeated(pairs: list[tuple[str, Any]]) -> None:
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                repeated_keys.append(key)
            keys.add(key)

    json.loads(content, object_pairs_hook=note_repeated)
    return repeated_keys
