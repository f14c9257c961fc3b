"""Ratings in the files in which Flickr8k-Expert, Flickr8k-CF and Composite are published.

Flickr8k has ExpertAnnotations.txt and CrowdFlowerAnnotations.txt, whose caption ids Flickr8k.token.txt resolves.
Composite has results of Mechanical Turk, such as 8k_correctness.csv. The readers follow the published evaluations.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from pipeline.errors import UserError
from pipeline.readers.annotation_file import FileRow, iterate_lines, read_annotation_text, show_json
from saywhich.calibrating.rating_records import CaptionRating, RatingFile, parse_rating
from saywhich.judging.caption_files import CaptionSet, ImageKey
from saywhich.judging.notes import Notes

FLICKR8K_LINE = "an image, a caption's id and three numbers, separated by tabs"
FLICKR8K_NUMBERS = "three ratings from 1 to 4, or a share of people and the numbers of those who accept and reject,"
EXPERT_RATINGS = (1, 2, 3, 4)
ROUNDING = 1e-5  # rounding error of CrowdFlower's shares
TURK = "HITId"  # a column of Mechanical Turk's results
CANDIDATES = 3  # Composite's captions of an image that papers use; Flickr30k's and COCO's files have a fourth


def read_flickr8k(path: Path, captions: CaptionSet | None, notes: Notes) -> RatingFile:
    """Read experts' ratings (1 … 4, by three raters), or CrowdFlower's: the share of people who accept a caption.

    `captions` are those of Flickr8k.token.txt, which are the references, too. Experts' ratings of an image's own
    reference do not count. A reference that CrowdFlower rated is no reference of its image. Raises UserError for lines
    of neither form, and without captions that have ids.
    """
    if captions is None or not captions.numbered:
        raise UserError(f"{path}: names captions by ids; give --references Flickr8k.token.txt, which has them")
    rating_file = RatingFile([])
    for row, line in iterate_lines(path):
        image, caption_id, numbers = _parse_flickr8k_line(row, line)
        caption = captions.numbered.get(caption_id)
        if caption is None:
            notes.add(f"ids of captions that are not in {captions.name}", caption_id)
            continue
        references = rating_file.references.setdefault(image, list(captions.captions.get(image, ())))
        share, yes, no = numbers
        if yes + no > 0 and abs(share - yes / (yes + no)) < ROUNDING:
            rating_file.references[image] = [text for text in references if text != caption]
            rating_file.ratings.append(CaptionRating(image, caption, share))
        elif not all(rating in EXPERT_RATINGS for rating in numbers):
            found = ", ".join(f"{number:g}" for number in numbers)
            row.fail(f"the numbers are {found}, and {FLICKR8K_NUMBERS} are expected; correct them")
        elif caption in references:
            notes.add("ratings of an image's own reference, which are left out", caption_id)
        else:
            rating_file.ratings.extend(CaptionRating(image, caption, rating) for rating in numbers)
    return rating_file


def read_composite(path: Path, notes: Notes) -> RatingFile:
    """Read one of Composite's files: an image's address, its candidate captions, and as many ratings.

    These columns follow the columns of Mechanical Turk itself. Captions beyond the third are left out, as in papers.
    Raises UserError for a damaged table, a row with too few cells, and a rating that is no number.
    """
    rating_file = RatingFile([])
    for row, image, captions, numbers in _read_turk_rows(path):
        for index, (caption, text) in enumerate(zip(captions, numbers, strict=True)):
            rating = parse_rating(text.strip())
            if rating is None:
                row.fail(f"the rating is {show_json(text)}, and a number is expected; correct it")
            if index >= CANDIDATES:
                notes.add("ratings of an image's fourth caption, which papers leave out", image)
            elif math.isnan(rating):
                notes.add(f"captions of {path.name} without a rating", image)
            else:
                rating_file.ratings.append(CaptionRating(image, " ".join(caption.split()), rating))
    return rating_file


def is_turk_table(path: Path) -> bool:
    """Return whether a table has the column HITId, as Mechanical Turk's results have."""
    header = next((line for _, line in iterate_lines(path)), "")
    return TURK in header.replace('"', "").split(_detect_separator(header))


def _parse_flickr8k_line(row: FileRow, line: str) -> tuple[str, str, tuple[float, float, float]]:
    parts = line.split("\t")
    numbers = [number for part in parts[2:] if (number := parse_rating(part)) is not None and not math.isnan(number)]
    if len(parts) != 5 or len(numbers) != 3:
        row.fail(f"is {show_json(line)}, and {FLICKR8K_LINE}, are expected; correct the line")
    return parts[0], parts[1], (numbers[0], numbers[1], numbers[2])


def _read_turk_rows(path: Path) -> Iterator[tuple[FileRow, ImageKey, Sequence[str], Sequence[str]]]:
    """Yield the image, the captions and the ratings of each row; rows without an address are left out."""
    text = read_annotation_text(path).lstrip("\r\n")
    rows = csv.reader(io.StringIO(text), delimiter=_detect_separator(text.partition("\n")[0]))
    try:
        header, *table = rows
    except csv.Error as error:
        raise UserError(f"{path}: not a CSV table ({error}); save it as CSV again") from None
    rows_with_address = [(number, values, _find_address_column(values)) for number, values in enumerate(table, 2)]
    count = _find_first_rating_column(
        [values[column + 1 :] for _, values, column in rows_with_address if column is not None]
    )
    for number, values, column in rows_with_address:
        if column is None:
            continue
        row, answers = FileRow(path, number), values[column + 1 :]
        if count < 1 or 2 * count > len(answers):
            columns = ", ".join([f"column {column + 1}", *header[column : column + 1]])
            found = f"found {len(answers)} values after the address"
            row.fail(f"expected an address, captions and as many ratings from {columns}, {found}; correct the row")
        yield row, values[column].rpartition("/")[2], answers[:count], answers[count : 2 * count]


def _find_address_column(values: Sequence[str]) -> int | None:
    return next((column for column, value in enumerate(values) if value.startswith("http")), None)


def _find_first_rating_column(rows: Sequence[Sequence[str]]) -> int:
    """Return the first column that has numbers in most of its cells with text; 0 without such a column.

    A caption can be a number, or missing, in a row.
    """
    for column, cells in enumerate(zip_longest(*rows, fillvalue="")):
        numbers = [parse_rating(cell) is not None for cell in cells if cell.strip()]
        if 2 * sum(numbers) > len(numbers):
            return column
    return 0


def _detect_separator(header: str) -> str:
    return max(";,\t", key=header.count)
