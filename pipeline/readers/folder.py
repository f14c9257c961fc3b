"""Own photos: a folder of images and a table of their captions."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from pipeline.data.corpus import SPLITS, Caption, Corpus, Image
from pipeline.errors import UserError
from pipeline.readers.annotation_file import Row, read_text, show
from pipeline.readers.checks import caption_of
from pipeline.readers.splits import drawn_split, split_of

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("file", "caption", "split")


def read_folder(table: Path, images: Path | None, shares: Mapping[str, float] | None = None) -> Corpus:
    """Read a CSV, JSON Lines or Parquet table of `file, caption`, a row per caption.

    `file` is relative to the folder `images`; the rows of an image may be anywhere. The column `split` (train, val,
    test; the same in all rows of an image) is optional; without it splits are drawn by `shares` (val, test, seed), see
    `drawn_split`. Images are in the order of their first rows. Raises UserError with file and row (a CSV's header is
    row 1; blank lines do not count).
    """
    table = Path(table)
    first: dict[str, Row] = {}
    captions: dict[str, dict[Caption, Row]] = {}
    splits: dict[str, str] = {}
    for row, values in _rows(table):
        file, split = _file(values["file"], row), values.get("split")
        if file not in first:
            if images and not os.path.isfile(images / file):  # False, too, for what can be no path
                row.fail(f"the image {show(file)} is missing in {images}")
            first[file], captions[file] = row, {}
            splits[file] = "" if split is None else split_of(split, row)
        elif split is not None and split_of(split, row) != splits[file]:
            row.fail(f"{file} is in the split {split} here, and in {splits[file]} at {first[file]}")
        caption = caption_of(values["caption"], None, row)
        if caption in captions[file]:
            row.fail(f"{file} has the same caption at {captions[file][caption]}; drop one ({show(caption.text)})")
        captions[file][caption] = row
    if not any(splits.values()):
        splits = _drawn(table, list(first), shares)
    elif few := _too_small(splits.values()):
        raise UserError(
            f"{table}: of {len(splits)} images fewer than two are in {few[0]}; each split needs two to tell apart"
        )
    read = tuple(Image(file, file, splits[file], tuple(captions[file])) for file in first)
    return Corpus(table.stem, read, (table,))


def _rows(table: Path) -> Iterator[tuple[Row, dict[str, str]]]:
    """Every row's place and its texts by column, none of them empty; `split` only where there is such a column."""
    import pyarrow as pa

    if (read := READERS.get(table.suffix.lower())) is None:
        raise UserError(f"{table}: a table of captions is a file {', '.join(READERS)}, by its ending")
    if not table.is_file():
        raise UserError(f"{table}: the table of captions is missing")
    content = read(table)
    names, columns = content.column_names, {}
    for name in COLUMNS:
        if names.count(name) > 1:
            raise UserError(f"{table}, row 1: there are two columns {name}")
        if name in names:
            try:
                columns[name] = content[name].cast(pa.string()).to_pylist()
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                kind = content[name].type
                raise UserError(f"{table}: the column {name} is to hold texts, not {kind}") from None
        elif name != "split":
            raise UserError(f"{table}, row 1: a column {name} is needed; there are {', '.join(map(show, names))}")
    if not content.num_rows:
        raise UserError(f"{table}: the table has no rows")
    for number, texts in enumerate(zip(*columns.values(), strict=True), 2 if table.suffix.lower() == ".csv" else 1):
        row, values = Row(table, number), {}
        for name, text in zip(columns, texts, strict=True):
            values[name] = (text or "").strip()
            if not values[name]:
                row.fail(f"the {name} is empty" + (f", of {show(values['file'])}" if name != "file" else ""))
        yield row, values


def _file(name: str, row: Row) -> str:
    """A normalised path relative to the images' folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or PureWindowsPath(name).is_absolute() or ".." in re.split(r"[/\\]", name):
        row.fail(f"the file {show(name)} lies outside the folder of images; write it relative to that, without ..")
    return path.as_posix()


def _drawn(table: Path, files: list[str], shares: Mapping[str, float] | None) -> dict[str, str]:
    if shares is None:
        raise UserError(
            f"{table}, row 1: there is no column split; add one (train, val, test), or set prepare.shares, "
            "{val: 0.1, test: 0.1, seed: 0}"
        )

    def draw(seed: int) -> dict[str, str]:
        return {file: drawn_split(file, shares["val"], shares["test"], seed) for file in files}

    drawn = draw(int(shares["seed"]))
    if few := _too_small(drawn.values()):
        fits = next((other for other in range(100) if not _too_small(draw(other).values())), None)
        hint = "" if fits is None else f"with seed: {fits} each has two or more, "
        raise UserError(
            f"{table}: at random fewer than two of {len(files)} images are in {few[0]}, too few to tell apart; {hint}"
            "larger shares help, and a column split (train, val, test) says it outright"
        )
    return drawn


def _too_small(splits: Collection[str]) -> list[str]:
    """The splits with fewer than two images: a listener tells images apart."""
    return [split for split in SPLITS if sum(other == split for other in splits) < 2]


def _read_csv(table: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    text = read_text(table)
    wrong: list[csv.InvalidRow] = []

    def note(row: csv.InvalidRow) -> str:
        wrong.append(row)
        return "skip"

    texts = {name: pa.string() for name in COLUMNS}
    try:
        content = csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=csv.ReadOptions(use_threads=False),  # threads would not know the number of a row
            parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
            convert_options=csv.ConvertOptions(column_types=texts, strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        raise UserError(f"{table}: not a CSV table ({' '.join(str(error).split())})") from None
    if wrong:
        row = wrong[0]
        Row(table, row.number).fail(
            f"{row.actual_columns} values for {row.expected_columns} columns ({show(row.text)}); put a caption with "
            'commas in double quotes, "…"'
        )
    if text.count('"') % 2:
        Row(table, content.num_rows + 1).fail(
            'a double quote " is not closed, here or before; a quote in a caption is written "" in a quoted caption'
        )
    return content


def _read_json_lines(table: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import json

    content = read_text(table).encode()
    schema = pa.schema({name: pa.string() for name in COLUMNS})
    try:
        rows = json.read_json(
            io.BytesIO(content),
            read_options=json.ReadOptions(use_threads=False, block_size=len(content) + 1),  # one block: rows count on
            parse_options=json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        said = " ".join(str(error).removeprefix("JSON parse error: ").split())
        problem, _, number = said.rpartition(" in row ")
        if not number.isdigit():
            raise UserError(f"{table}: not JSON Lines ({said})") from None
        Row(table, int(number) + 1).fail(f"a row is one JSON object of texts, file and caption ({problem.rstrip('.')})")
    return rows.drop_columns([name for name in schema.names if rows[name].null_count == len(rows)])


def _read_parquet(table: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(table).names
        return pq.read_table(table, columns=[name for name in COLUMNS if name in names])
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{table}: not a Parquet file ({' '.join(str(error).split())})") from None


READERS: Mapping[str, Callable[[Path], pa.Table]] = {
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}
