"""Files of annotations, read so that a mistake in one is told with its place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pipeline.errors import UserError


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file something stands; its line is looked for only when it is told."""

    file: Path
    text: str
    key: str
    index: int
    rest: str = ""

    def at(self, part: str) -> Place:
        return Place(self.file, self.text, self.key, self.index, f"{self.rest}.{part}")

    def __str__(self) -> str:
        return f"{self.key}[{self.index}]{self.rest} (line {line_of(self.text, self.key, self.index)})"

    def fail(self, problem: str) -> NoReturn:
        raise UserError(f"{self.file}, {self}: {problem}")


@dataclass(frozen=True, slots=True)
class Row:
    """A row or line of a table or text file, from 1."""

    file: Path
    number: int
    word: str = "row"

    def __str__(self) -> str:
        return f"{self.word} {self.number}"

    def fail(self, problem: str) -> NoReturn:
        raise UserError(f"{self.file}, {self}: {problem}")


class Once:
    """Names that may occur but once, in one file or in several."""

    def __init__(self, what: str):
        self.what = what
        self.seen: dict[Any, Place | Row] = {}

    def add(self, name: Any, place: Place | Row) -> None:
        if name in self.seen:
            first = self.seen[name]
            where = str(first) if first.file == place.file else f"{first.file}, {first}"
            place.fail(f"{self.what} {show(name)} is there a second time, first at {where}")
        self.seen[name] = place

    def __contains__(self, name: Any) -> bool:
        return name in self.seen


def read_text(file: Path) -> str:
    """A UTF-8 file's text, its line ends as they are, without a byte order mark."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{file}: the annotation file is missing") from None
    except OSError as error:
        raise UserError(f"{file}: the annotation file cannot be read ({error})") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}, line {line}: the file cannot be read: not UTF-8; save it as UTF-8 text") from None


def load(file: Path) -> tuple[str, dict[str, Any]]:
    text = read_text(file)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{file}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
    if not isinstance(data, dict):
        raise UserError(f"{file}, line 1: the file is to be one JSON object, not {show(data)}")
    return text, data


def rows_of(data: dict[str, Any], key: str, file: Path) -> list[dict[str, Any]]:
    rows = data.get(key)
    if not isinstance(rows, list):
        raise UserError(f"{file}, line 1: the object needs a list `{key}`, not {show(rows)}")
    return rows


def get(row: Any, key: str, kind: Any, place: Place, default: Any = None) -> Any:
    if not isinstance(row, dict):
        place.fail(f"an object with `{key}` is to stand here, not {show(row)}")
    value = row.get(key, default)
    if not isinstance(value, kind) or isinstance(value, bool):
        place.fail(f"`{key}` is missing" if value is None else f"`{key}` is {show(value)}")
    return value


def show(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 60 else shown[:57] + "…"


def line_of(text: str, key: str, index: int) -> int:
    """The line on which element `index` of the list `key` of the file's object begins, from 1."""
    decoder = json.JSONDecoder()
    match = re.search(rf"{re.escape(json.dumps(key))}\s*:\s*\[", text)
    if match is None:  # the key is written with escapes
        return 1
    at = _skip(text, match.end())
    for _ in range(index):
        at = _skip(text, decoder.raw_decode(text, at)[1])
    return text.count("\n", 0, at) + 1


def _skip(text: str, at: int) -> int:
    """The position of the next character that is neither blank nor a comma."""
    while text[at] in " \t\r\n,":
        at += 1
    return at
