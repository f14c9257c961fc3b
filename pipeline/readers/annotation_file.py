"""Annotation files, read so that errors name the place of a mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pipeline.errors import UserError, reason
from pipeline.runtime.untrusted import plain


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is in a file; its text (`str`) says so."""

    file: Path

    def fail(self, problem: str) -> NoReturn:
        """Raise the UserError of a mistake here."""
        raise UserError(f"{self.file}, {self}: {problem}")


@dataclass(frozen=True, slots=True)
class Row(Place):
    """A row or line of a table or text file, from 1."""

    number: int
    word: str = "row"

    def __str__(self) -> str:
        return f"{self.word} {self.number}"


@dataclass(frozen=True, slots=True)
class Entry(Place):
    """Element `index` of the list `key` of a JSON object, or a part of it, with its value."""

    text: str  # of the file; the line is looked up only for an error
    key: str
    index: int
    value: Any
    part: str = ""

    def __str__(self) -> str:
        return f"{self.key}[{self.index}]{self.part} (line {_line_of(self.text, self.key, self.index)})"

    def get(self, key: str, kind: Any, default: Any = None) -> Any:
        """`value[key]`, which must be of the type `kind`; raises UserError otherwise."""
        if not isinstance(self.value, dict):
            self.fail(f"an object with `{key}` is to stand here, not {show(self.value)}")
        found = self.value.get(key, default)
        if not isinstance(found, kind) or isinstance(found, bool):
            self.fail(f"`{key}` is missing" if found is None else f"`{key}` is {show(found)}")
        return found

    def parts(self, key: str) -> Iterator[Entry]:
        """The elements of the list `value[key]`."""
        for number, value in enumerate(self.get(key, list)):
            yield Entry(self.file, self.text, self.key, self.index, value, f"{self.part}.{key}[{number}]")


class JsonFile:
    """A file that holds one JSON object, `data`; raises UserError for any other."""

    def __init__(self, file: Path) -> None:
        self.file, self.text = file, read_text(file)
        try:
            self.data: dict[str, Any] = json.loads(self.text)
        except json.JSONDecodeError as error:
            raise UserError(f"{file}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
        except (ValueError, RecursionError) as error:  # a number of thousands of digits; nested too deeply
            raise UserError(f"{file}: not JSON that can be read ({reason(error)})") from None
        if half := _half_character(self.text):
            raise UserError(f"{file}, line {half}: half a character (\\ud800 … \\udfff without its other half)")
        if not isinstance(self.data, dict):
            raise UserError(f"{file}, line 1: the file is to be one JSON object, not {show(self.data)}")

    def entries(self, key: str) -> list[Entry]:
        """The elements of the list `key`."""
        values = self.data.get(key)
        if not isinstance(values, list):
            raise UserError(f"{self.file}, line 1: the object needs a list `{key}`, not {show(values)}")
        return [Entry(self.file, self.text, key, index, value) for index, value in enumerate(values)]


class Once:
    """Names that may occur only once, in one file or in several."""

    def __init__(self, what: str):
        self.what = what
        self.seen: dict[Any, Place] = {}

    def add(self, name: Any, place: Place) -> None:
        """Raises UserError where `name` has been added before."""
        if not isinstance(name, str | int):
            place.fail(f"{self.what} is to be a number or a text, not {show(name)}")
        if name in self.seen:
            first = self.seen[name]
            where = str(first) if first.file == place.file else f"{first.file}, {first}"
            place.fail(f"{self.what} {show(name)} is there a second time, first at {where}")
        self.seen[name] = place


def read_text(file: Path) -> str:
    """A UTF-8 file's text, its line ends as they are, without a byte order mark."""
    try:
        return plain(file).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{file}: the annotation file is missing") from None
    except OSError as error:
        raise UserError(f"{file}: the annotation file cannot be read ({error})") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}, line {line}: the file cannot be read: not UTF-8; save it as UTF-8 text") from None


def lines_of(file: Path) -> Iterator[tuple[Row, str]]:
    """The lines of a text file that are not blank, each with its place."""
    for number, line in enumerate(read_text(file).split("\n"), 1):
        if line.strip():
            yield Row(file, number, "line"), line.rstrip("\r")


def _half_character(text: str) -> int:
    """The first line with an escape of half a character alone, which no UTF-8 file can hold; 0: none."""
    halves = re.compile(r"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})?(\\u[dD][c-fC-F][0-9a-fA-F]{2})?")
    if not re.search(r"\\u[dD][89a-fA-F]", text):
        return 0
    alone = (found for found in halves.finditer(text) if (found[1] is None) != (found[2] is None))
    return next((text.count("\n", 0, found.start()) + 1 for found in alone), 0)


def show(value: Any) -> str:
    """A value as JSON, shortened to 60 characters."""
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 60 else shown[:57] + "…"


def _line_of(text: str, key: str, index: int) -> int:
    """The line on which element `index` of the list `key` of the file's object begins, from 1."""
    decoder = json.JSONDecoder()
    match = re.search(rf"{re.escape(json.dumps(key))}\s*:\s*\[", text)
    if match is None:  # the key is written with escapes
        return 1
    at = match.end()
    for number in range(index + 1):
        at = decoder.raw_decode(text, at)[1] if number else at
        while text[at] in " \t\r\n,":
            at += 1
    return text.count("\n", 0, at) + 1
