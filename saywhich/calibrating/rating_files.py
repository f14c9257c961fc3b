"""People's ratings of captions: tables with a row per rating, CLIPScore's JSON form, and the published files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.readers.annotation_file import show_json
from pipeline.readers.table_files import read_texts
from pipeline.runtime.records import parse_json, read_bytes
from saywhich.calibrating.published_ratings import is_turk_table, read_composite, read_flickr8k
from saywhich.calibrating.rating_records import CaptionRating, RatingFile, parse_rating
from saywhich.judging.caption_files import FILE_KEYS, MAX_JSON_BYTES, CaptionSet, ImageKey
from saywhich.judging.notes import Notes

IMAGES = (*FILE_KEYS, "image_id")  # columns that may name the image
COLUMNS = (*IMAGES, "caption", "rating", "rater")
STRING_OR_NAN = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|\bNaN\b')  # in JSON; group 1: the string
JSON_FORM = '{id: {"image_path", "ground_truth": [captions], "human_judgement": [{"image_path", "caption", "rating"}]}}'


def read_ratings(path: Path, captions: CaptionSet | None, notes: Notes) -> RatingFile:
    """Read ratings: a table (columns image, caption, rating, optionally rater), CLIPScore's JSON or a published file.

    `captions` are further references of the images; Flickr8k's files need them to resolve the ids of captions. Captions
    without a rating are left out with a note. Raises UserError for a file of another form, a rating that is no number,
    and fewer than two different ratings.
    """
    extension = path.suffix.lower()
    if extension == ".txt":
        rating_file = read_flickr8k(path, captions, notes)
    else:
        if extension == ".json":
            rating_file = _read_json(path, notes)
        elif extension == ".csv" and path.is_file() and is_turk_table(path):
            rating_file = read_composite(path, notes)
        else:
            rating_file = RatingFile(list(_read_table(path, notes)))
        for image, texts in (captions.captions if captions else {}).items():
            rating_file.references.setdefault(image, []).extend(texts)
    if len({each.rating for each in rating_file.ratings}) < 2:
        summary = f"{len(rating_file.ratings):,} ratings, all of one value" if rating_file.ratings else "no ratings"
        raise UserError(f"{path}: {summary}; two values or more are needed: add ratings")
    return rating_file


def _read_table(path: Path, notes: Notes) -> Iterator[CaptionRating]:
    for row, values in read_texts(path, COLUMNS, ("caption", "rating")):
        image = next((values[name] for name in IMAGES if values.get(name)), "")
        if not image:
            row.fail(f"names no image; name it in the column {' or '.join(IMAGES)}")
        rating = parse_rating(values["rating"])
        if rating is None:
            row.fail(f"the rating is {show_json(values['rating'])}, and a number is expected; correct it")
        if math.isnan(rating):
            notes.add(f"rows of {path.name} without a rating", image)
            continue
        yield CaptionRating(image, " ".join(values["caption"].split()), rating, values.get("rater", ""))


def _read_json(path: Path, notes: Notes) -> RatingFile:
    content = read_bytes(path, "give another file", MAX_JSON_BYTES)
    content = STRING_OR_NAN.sub(lambda match: match[1] or b"null", content)  # NaN is a missing rating
    document = parse_json(content, str(path), f"the form is {JSON_FORM}")
    if not isinstance(document, Mapping):
        raise UserError(f"{path}: holds {show_json(document)}; the form is {JSON_FORM}")
    rating_file = RatingFile([])
    for key, entry in document.items():
        try:
            texts = [_require_text(text) for text in _require_list(entry["ground_truth"])]
            references = rating_file.references.setdefault(_require_image_key(entry["image_path"]), [])
            references += [text for text in texts if text not in references]
            for each in _require_list(entry["human_judgement"]):
                image, caption = _require_image_key(each["image_path"]), _require_text(each["caption"])
                rating = None if isinstance(each["rating"], bool) else parse_rating(each["rating"])
                if rating is None:
                    value = show_json(each["rating"])
                    raise UserError(
                        f"{path}, {show_json(key)}: the rating is {value}, and a number is expected; correct it"
                    )
                if math.isnan(rating):
                    notes.add(f"captions of {path.name} without a rating", image)
                    continue
                rating_file.ratings.append(CaptionRating(image, " ".join(caption.split()), rating))
        except (KeyError, TypeError):
            raise UserError(f"{path}, {show_json(key)}: has another form; the form is {JSON_FORM}") from None
    return rating_file


def _require_image_key(value: Any) -> ImageKey:
    """Return `value` if it is an image's name or id; raise TypeError otherwise."""
    return value if isinstance(value, int) and not isinstance(value, bool) else _require_text(value)


def _require_text(value: Any) -> str:
    """Return `value` if it is a string; raise TypeError otherwise."""
    if not isinstance(value, str):
        raise TypeError
    return value


def _require_list(value: Any) -> list[Any]:
    """Return `value` if it is a list; raise TypeError otherwise."""
    if not isinstance(value, list):
        raise TypeError
    return value
