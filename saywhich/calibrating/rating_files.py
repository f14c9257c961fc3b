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
from saywhich.judging.caption_files import FILE_KEYS, LARGEST, CaptionSet, ImageKey
from saywhich.judging.notes import Notes

IMAGES = (*FILE_KEYS, "image_id")  # columns that may name the image
COLUMNS = (*IMAGES, "caption", "rating", "rater")
STRING_OR_NAN = re.compile(rb'("[^"\\]*+(?:\\.[^"\\]*+)*+")|\bNaN\b')  # in JSON; group 1: the string
JSON_FORM = '{id: {"image_path", "ground_truth": [captions], "human_judgement": [{"image_path", "caption", "rating"}]}}'


def read_ratings(path: Path, captions: CaptionSet | None, notes: Notes) -> RatingFile:
    """Read a table with the columns image, caption, rating and possibly rater, CLIPScore's JSON form, or another one.

    `captions` are further references of the images, and resolve the ids of Flickr8k's captions. Captions without a
    rating are left out with a note. Raises UserError for a rating that is no number, and for fewer than two different
    ratings.
    """
    ending = path.suffix.lower()
    if ending == ".txt":
        found = read_flickr8k(path, captions, notes)
    else:
        if ending == ".json":
            found = _read_json(path, notes)
        elif ending == ".csv" and path.is_file() and is_turk_table(path):
            found = read_composite(path, notes)
        else:
            found = RatingFile(list(_read_table(path, notes)))
        for image, texts in (captions.captions if captions else {}).items():
            found.references.setdefault(image, []).extend(texts)
    if len({each.rating for each in found.ratings}) < 2:
        given = f"{len(found.ratings):,} ratings, all of one value" if found.ratings else "no ratings"
        raise UserError(f"{path}: {given}; two values or more are needed")
    return found


def _read_table(path: Path, notes: Notes) -> Iterator[CaptionRating]:
    for row, values in read_texts(path, COLUMNS, ("caption", "rating")):
        image = next((values[name] for name in IMAGES if values.get(name)), "")
        if not image:
            row.fail(f"names no image; one of the columns {', '.join(IMAGES)} is needed")
        rating = parse_rating(values["rating"])
        if rating is None:
            row.fail(f"the rating is {show_json(values['rating'])}, and a number is expected")
        if math.isnan(rating):
            notes.add(f"rows of {path.name} without a rating", image)
            continue
        yield CaptionRating(image, " ".join(values["caption"].split()), rating, values.get("rater", ""))


def _read_json(path: Path, notes: Notes) -> RatingFile:
    content = read_bytes(path, "give another file", LARGEST)
    content = STRING_OR_NAN.sub(lambda found: found[1] or b"null", content)  # NaN is a missing rating
    given = parse_json(content, str(path), f"the form is {JSON_FORM}")
    if not isinstance(given, Mapping):
        raise UserError(f"{path}: holds {show_json(given)}; the form is {JSON_FORM}")
    found = RatingFile([])
    for key, entry in given.items():
        try:
            texts = [_require_text(text) for text in _require_list(entry["ground_truth"])]
            known = found.references.setdefault(_image_key(entry["image_path"]), [])
            known += [text for text in texts if text not in known]
            for each in _require_list(entry["human_judgement"]):
                image, caption = _image_key(each["image_path"]), _require_text(each["caption"])
                rating = None if isinstance(each["rating"], bool) else parse_rating(each["rating"])
                if rating is None:
                    rated = show_json(each["rating"])
                    raise UserError(f"{path}, {show_json(key)}: the rating is {rated}, and a number is expected")
                if math.isnan(rating):
                    notes.add(f"captions of {path.name} without a rating", image)
                    continue
                found.ratings.append(CaptionRating(image, " ".join(caption.split()), rating))
        except (KeyError, TypeError):
            raise UserError(f"{path}, {show_json(key)}: has another form; the form is {JSON_FORM}") from None
    return found


def _image_key(given: Any) -> ImageKey:
    """Return the name or id of an image; raises TypeError for anything else."""
    return given if isinstance(given, int) and not isinstance(given, bool) else _require_text(given)


def _require_text(given: Any) -> str:
    """Return a text; raises TypeError for anything else."""
    if not isinstance(given, str):
        raise TypeError
    return given


def _require_list(given: Any) -> list[Any]:
    """Return a list; raises TypeError for anything else."""
    if not isinstance(given, list):
        raise TypeError
    return given
