"""Parsing of annotation files, with errors that name the position of a mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.untrusted import require_plain_file

KINDS = {str: "a text", int: "a whole number", int | str: "a whole number or a text", list: "a list"}
# a JSON escape: a surrogate pair, a lone surrogate (group 1), or another character
ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)")


@dataclass(frozen=True, slots=True)
class FilePosition:
    """Position in a file, which subclasses describe by `str`."""

    file: Path

    def fail(self, problem: str) -> NoReturn:
        """Raise a UserError about this position."""
        raise UserError(f"{self.file}, {self}: {problem}")


@dataclass(frozen=True, slots=True)
class FileRow(FilePosition):
    """Entry of a file, by its number; rows and lines count from 1."""

    number: int
    word: str = "row"

    def __str__(self) -> str:
        return f"{self.word} {self.number}"


@dataclass(frozen=True, slots=True)
class JsonEntry(FilePosition):
    """Element `index` of the list `key` of a JSON object, or a part of it, with its value."""

    text: str  # the file's text; the line is computed only for an error
    key: str
    index: int
    value: Any
    part: str = ""

    def __str__(self) -> str:
        return f"{self.key}[{self.index}]{self.part} (line {_find_line(self.text, self.key, self.index)})"

    def get(self, key: str, kind: Any, default: Any = None) -> Any:
        """Return `value[key]`, or `default` without this key.

        Raises UserError unless the entry is an object and the result has the type `kind`; a bool is not an int here.
        """
        if not isinstance(self.value, dict):
            self.fail(f"an object with `{key}` is expected here, not {show_json(self.value)}; correct it")
        value = self.value.get(key, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            description = "missing" if value is None else show_json(value)
            self.fail(f"`{key}` is {description}, and {KINDS.get(kind, 'another value')} is expected; correct it")
        return value

    def parts(self, key: str) -> Iterator[JsonEntry]:
        """Yield the elements of the list `value[key]`; raises UserError where there is no such list."""
        for number, value in enumerate(self.get(key, list)):
            yield JsonEntry(self.file, self.text, self.key, self.index, value, f"{self.part}.{key}[{number}]")


class JsonFile:
    """A file that holds one JSON object, `data`; raises UserError for any other content."""

    def __init__(self, file: Path) -> None:
        self.file, self.text = file, read_annotation_text(file)
        try:
            self.data: dict[str, Any] = json.loads(self.text)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{file}, line {error.lineno}, column {error.colno}: not JSON ({error.msg}); correct it there"
            ) from None
        except (ValueError, RecursionError) as error:  # a number with thousands of digits; nesting that is too deep
            raise UserError(f"{file}: not JSON that can be read ({summarise_error(error)}); write it again") from None
        if line := _find_lone_surrogate(self.text):
            raise UserError(
                f"{file}, line {line}: a lone surrogate (\\ud800 … \\udfff without its other half); "
                "write the whole character"
            )
        if not isinstance(self.data, dict):
            raise UserError(f"{file}, line 1: the file must be one JSON object, not {show_json(self.data)}; correct it")

    def entries(self, key: str) -> list[JsonEntry]:
        """Return the elements of the list `key`; raises UserError where there is no such list."""
        values = self.data.get(key)
        if not isinstance(values, list):
            raise UserError(
                f"{self.file}, line 1: the object needs a list `{key}`, not {show_json(values)}; correct it"
            )
        return [JsonEntry(self.file, self.text, key, index, value) for index, value in enumerate(values)]


class UniqueNames:
    """A set of names that may occur only once, in one file or in several; the number 1 and the text "1" are equal."""

    def __init__(self, kind: str):
        self.kind = kind
        self.positions: dict[str, FilePosition] = {}

    def add(self, name: Any, position: FilePosition) -> None:
        """Add `name`; raises UserError where it was added before, or is neither a whole number nor a text."""
        if not isinstance(name, str | int) or isinstance(name, bool):
            position.fail(f"{self.kind} must be a whole number or a text, not {show_json(name)}; correct it")
        if (first := self.positions.get(str(name))) is not None:
            first_position = str(first) if first.file == position.file else f"{first.file}, {first}"
            position.fail(f"{self.kind} {show_json(name)} occurs a second time, first at {first_position}; remove one")
        self.positions[str(name)] = position


def read_annotation_text(file: Path) -> str:
    """Return a UTF-8 file's text with its line ends, without a byte order mark; raises UserError if unreadable."""
    try:
        return require_plain_file(file).read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{file}: the annotation file is missing; copy it there") from None
    except OSError as error:
        raise UserError(f"{file}: the annotation file cannot be read ({error}); make it readable") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}, line {line}: the file cannot be read: not UTF-8; save it as UTF-8 text") from None


def iterate_lines(file: Path) -> Iterator[tuple[FileRow, str]]:
    """Yield the non-blank lines of a text file, each with its position; raises UserError if unreadable."""
    for number, line in enumerate(read_annotation_text(file).split("\n"), 1):
        if line.strip():
            yield FileRow(file, number, "line"), line.rstrip("\r")


def _find_lone_surrogate(text: str) -> int:
    """Return the first line with the escape of a lone surrogate, which UTF-8 cannot encode; 0 if there is none."""
    return next((text.count("\n", 0, match.start()) + 1 for match in ESCAPE.finditer(text) if match[1]), 0)


def show_json(value: Any) -> str:
    """Return a value as JSON, shortened to at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _find_line(text: str, key: str, index: int) -> int:
    """Return the line, from 1, on which element `index` of the list `key` of the file's object begins."""
    decoder, list_start = json.JSONDecoder(), 0

    def skip(offset: int) -> int:
        while text[offset] in " \t\r\n,:":
            offset += 1
        return offset

    offset = skip(text.index("{") + 1)
    while text[offset] != "}":
        name, offset = decoder.raw_decode(text, offset)
        value = skip(offset)
        if name == key:
            list_start = value  # the last list counts if a key is repeated, as in `json.loads`
        offset = skip(decoder.raw_decode(text, value)[1])
    offset = skip(list_start + 1)
    for _ in range(index):
        offset = skip(decoder.raw_decode(text, offset)[1])
    return text.count("\n", 0, offset) + 1
