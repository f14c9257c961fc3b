"""Parsing of tables of texts in CSV, JSON Lines or Parquet files, with errors that name the row."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import UserError, summarise_error
from pipeline.readers.annotation_file import FileRow, iterate_lines, read_annotation_text, show_json
from pipeline.runtime.records import parse_json

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("file", "caption", "split")
SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
MAX_ROWS, MAX_BYTES = 20_000_000, 2 * 2**30  # limits for Parquet, whose compressed columns hide their size
ROWS_AT_ONCE = 65_536


def read_rows(table: Path) -> Iterator[tuple[FileRow, dict[str, str]]]:
    """Yield each row's position and its texts by column: `file`, `caption` and, if the table has it, `split`.

    A CSV's separator is the comma, semicolon or tab that is most frequent in its first line. Raises UserError with file
    and row, also for an empty text.
    """
    for row, values in read_texts(table, COLUMNS, COLUMNS[:2]):
        for name, text in values.items():
            if not text:
                row.fail(
                    f"the {name}"
                    + (f" of {show_json(values['file'])}" if name != "file" else "")
                    + " is empty; write one"
                )
        yield row, values


def read_texts(table: Path, wanted: Sequence[str], required: Sequence[str]) -> Iterator[tuple[FileRow, dict[str, str]]]:
    """Yield each row's position and its stripped texts, for the columns of `wanted` that the table has.

    Numbers are read as texts. Raises UserError as `read_rows` does, but not for an empty text; `required` are the
    columns that must be there.
    """
    import pyarrow as pa

    if table.suffix.lower() in SPREADSHEETS:
        raise UserError(f"{table}: a spreadsheet; save it as “CSV UTF-8” and name that file")
    if (reader := READERS.get(table.suffix.lower())) is None:
        raise UserError(f"{table}: expected a table whose name ends in {', '.join(READERS)}; name one")
    if not table.is_file():
        candidates = [
            path for path in sorted(table.parent.glob("*")) if path.suffix.lower() in {*READERS, *SPREADSHEETS}
        ]
        hint = "; copy it there"
        if candidates:
            save = f": save it as “CSV UTF-8”, {table.name}" if candidates[0].suffix.lower() in SPREADSHEETS else ""
            hint = f"; there is {candidates[0].name}{save}"
        raise UserError(f"{table}: the table is missing{hint}")
    content, names = reader(table, wanted)
    header = table if reader is _read_parquet else f"{table}, row 1"
    columns = {}
    for name in wanted:
        if names.count(name) > 1:
            raise UserError(f"{header}: there are two columns {name}; rename or remove one")
        if name in names:
            try:
                columns[name] = content[name].cast(pa.string()).to_pylist()
            except UnicodeDecodeError:
                raise UserError(
                    f"{table}: the column {name} holds bytes that are not UTF-8; write it as texts"
                ) from None
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                kind = content[name].type
                raise UserError(f"{table}: the column {name} must hold texts, not {kind}; write texts") from None
        elif name in required:
            found = ", ".join(map(show_json, names))
            raise UserError(f"{header}: a column {name} is needed; there are {found}; rename or add a column")
    if not content.num_rows:
        raise UserError(f"{table}: the table has no rows; add one or more")
    for number, texts in enumerate(zip(*columns.values(), strict=True), 2 if reader is _read_csv else 1):
        yield FileRow(table, number), {name: (text or "").strip() for name, text in zip(columns, texts, strict=True)}


def _read_csv(table: Path, wanted: Sequence[str]) -> tuple[pa.Table, list[str]]:
    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, InvalidRow, ParseOptions, ReadOptions, read_csv

    text = read_annotation_text(table)
    invalid_rows: list[InvalidRow] = []

    def collect(row: InvalidRow) -> str:
        invalid_rows.append(row)
        return "skip"

    column_types = {name: pa.string() for name in wanted}
    header = text.partition("\n")[0]
    separator = max(SEPARATORS, key=header.count)  # a comma if there is none of the three
    try:
        content = read_csv(
            io.BytesIO(text.encode()),
            read_options=ReadOptions(use_threads=False),  # with threads, the number of a row is unknown
            parse_options=ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=collect),
            convert_options=ConvertOptions(column_types=column_types, strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        raise UserError(f"{table}: not a CSV table ({' '.join(str(error).split())}); save it as CSV again") from None
    if invalid_rows:
        row = invalid_rows[0]
        FileRow(table, row.number).fail(
            f"{row.actual_columns} values for {row.expected_columns} columns ({show_json(row.text)}); "
            f'put a caption with {SEPARATORS[separator]} in double quotes, "…"'
        )
    if text.count('"') % 2 and not _closes_quotes(text, separator):
        FileRow(table, content.num_rows + 1).fail(
            'a double quote " is not closed, here or before; a quote in a caption is written "" in a quoted caption'
        )
    return content, content.column_names


def _closes_quotes(text: str, separator: str) -> bool:
    """Return whether each quoted value of a CSV ends with a quote; other values may hold single quotes, as in 5"."""
    try:
        for _ in csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True):
            pass
    except csv.Error:
        return False
    return True


def _read_json_lines(table: Path, wanted: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Read each line by itself, since a first line `null` ends the process in pyarrow's own reader.

    A column of `wanted` without a value is left out, unless the file has no rows.
    """
    import pyarrow as pa

    columns: dict[str, list[str | None]] = {name: [] for name in wanted}
    other_names: list[str] = []  # other keys of the first row
    for number, (_, line) in enumerate(iterate_lines(table), 1):
        row = FileRow(table, number)
        values = parse_json(line, f"{table}, {row}", "a row is one JSON object of texts")
        if not isinstance(values, dict):
            row.fail(f"expected one JSON object of texts, found {show_json(values)}; correct it")
        if number == 1:
            other_names = [key for key in values if key not in columns]
        for name, column in columns.items():
            value = values.get(name)
            if isinstance(value, bool) or not isinstance(value, str | int | float | None):
                row.fail(f"the {name} is {show_json(value)}, and a text is expected; correct it")
            column.append(value if value is None or isinstance(value, str) else show_json(value))
    present = {
        name: column for name, column in columns.items() if not column or any(value is not None for value in column)
    }
    return pa.table(present, pa.schema({name: pa.string() for name in present})), [*present, *other_names]


def _read_parquet(table: Path, wanted: Sequence[str]) -> tuple[pa.Table, list[str]]:
    """Read the table in parts and count bytes before texts are unpacked.

    A small file may hold one text a billion times. Raises UserError above MAX_ROWS or MAX_BYTES.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(table)
        kept = pa.schema([field for field in schema if field.name in wanted])
        if nested := [field for field in kept if pa.types.is_nested(field.type)]:
            raise UserError(f"{table}: the column {nested[0].name} must hold texts, not {nested[0].type}; write texts")
        with pq.ParquetFile(table, read_dictionary=kept.names) as file:
            parts, rows, size = [], file.metadata.num_rows, 0
            for part in file.iter_batches(ROWS_AT_ONCE, columns=kept.names) if rows <= MAX_ROWS else ():
                size += sum(map(_count_unpacked_bytes, part.columns))
                if size > MAX_BYTES:
                    break
                parts.append(part)
    except UserError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{table}: not a Parquet file ({summarise_error(error)}); write it again") from None
    if rows > MAX_ROWS:
        raise UserError(f"{table}: expected at most {MAX_ROWS:,} rows, got {rows:,}; split the table")
    if size > MAX_BYTES:
        raise UserError(f"{table}: expected at most {MAX_BYTES:,} bytes of texts, got more; split the table")
    content = pa.Table.from_batches(parts) if parts else kept.empty_table()
    return content, schema.names


def _count_unpacked_bytes(column: pa.Array) -> int:
    """Return the bytes of a column's values after dictionary decoding, which repeats equal values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    return pc.sum(pc.binary_length(column.dictionary).cast(pa.int64()).take(column.indices)).as_py() or 0


# Readers return a table with at least the wanted columns that have values, and the names of the file's columns.
READERS: Mapping[str, Callable[[Path, Sequence[str]], tuple[pa.Table, list[str]]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".jsonl": _read_json_lines,
    ".parquet": _read_parquet,
}
