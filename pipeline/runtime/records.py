"""Reading of untrusted JSON files, with bounds of size and depth, finite numbers and declared types.

No number and no nesting in such a file makes the program run or allocate memory without bound. `read_record` also
checks the content against a `Record`, whose fields have types and ranges, before anything is built from it.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.checksums import check_own_digest
from pipeline.runtime.untrusted import require_plain_file

MAX_BYTES = 4 * 2**20  # bytes of a file, by default
MAX_DEPTH = 32  # levels
MAX_KEYS = 10_000  # keys of one mapping in a record
MAX_DIGITS = 64  # digits of a whole number

# a line of text that can be printed and stored: no control characters
Line = Annotated[str, Field(min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$")]
DIGEST = re.compile("[0-9a-f]{64}")
Digest = Annotated[str, Field(pattern=f"^{DIGEST.pattern}$")]


class Record(BaseModel):
    """Mapping with fixed keys, whose values are not converted: true is no number, "3" is not 3, NaN is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


R = TypeVar("R", bound=Record)


def read_record(path: Path, kind: type[R], remedy: str, max_bytes: int = MAX_BYTES) -> R:
    """Read the record in the JSON file `path`. Raises UserError of one line, with `remedy`, for any other content."""
    return parse_record(read_json(path, remedy, max_bytes), kind, str(path), remedy)


def parse_record(value: Any, kind: type[R], source: str, remedy: str) -> R:
    """Return `value`, from `parse_json`, as a record. Raises UserError of one line for other keys, types or ranges."""
    # pydantic would create an error for each key before the first error is reported
    if (keys := _count_largest_mapping(value)) > MAX_KEYS:
        raise UserError(f"{source}: a mapping has {keys:,} keys, at most {MAX_KEYS:,} are allowed; {remedy}")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise UserError(f"{source}: {describe_first_problem(error)}; {remedy}") from None


def read_json(path: Path, remedy: str, max_bytes: int = MAX_BYTES) -> Any:
    """Read the JSON file `path` of at most `max_bytes` bytes. Raises UserError as `parse_json` and `read_bytes` do."""
    return parse_json(read_bytes(path, remedy, max_bytes), str(path), remedy)


def read_checksummed(path: Path, remedy: str, required: bool = True) -> dict[str, Any]:
    """Read a file that `serialise_with_checksum` wrote, and return its content without the digest.

    Raises UserError as `read_json` does, for content that is no mapping, and where a byte has changed. Without
    `required`, a file of an earlier version, which has no digest, passes.
    """
    content = read_bytes(path, remedy)
    value: Any = parse_json(content, str(path), remedy)
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected a mapping, found {_describe_value(value)}; {remedy}")
    digests = [text for text in value.values() if isinstance(text, str) and DIGEST.fullmatch(text)]  # under any key
    if required or digests or "sha256" in value:
        check_own_digest(content, path, remedy)
        del value["sha256"]
    return value


def read_bytes(path: Path, remedy: str, max_bytes: int = MAX_BYTES) -> bytes:
    """Read all bytes of a plain file. Raises UserError where it is missing, unreadable or above `max_bytes` bytes."""
    try:
        with open(require_plain_file(path), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > max_bytes:
                raise UserError(f"{path}: has {size:,} bytes, at most {max_bytes:,} are read; {remedy}")
            return file.read(max_bytes)
    except OSError as error:
        raise UserError(f"{path}: missing, or cannot be read ({summarise_error(error)}); {remedy}") from None


def parse_json(content: bytes | str, source: str, remedy: str) -> Any:
    """Parse standard JSON. Raises UserError for damage, NaN, infinity, huge numbers, lone surrogates, deep nesting."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_parse_float, parse_int=_parse_integer)
        _check_nesting(value)
        return value
    except RecursionError:
        problem = "nested too deeply"
    except ValueError as error:  # from the parser, the decoder, or the checks below
        problem = summarise_error(error)
    raise UserError(f"{source}: not JSON that can be read ({problem}); {remedy}")


def describe_first_problem(error: ValidationError) -> str:
    """Describe the first wrong value in one line."""
    first = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(map(str, first["loc"]))
    suffix = "" if first["type"] in ("missing", "extra_forbidden") else f", and is {_describe_value(first['input'])}"
    prefix = f"{_shorten(json.dumps(key)[1:-1])}: " if key else ""
    return f"{prefix}{summarise_error(ValueError(first['msg']))}{suffix}"


def _describe_value(value: Any) -> str:
    kind = type(value).__name__
    return _shorten(json.dumps(value) if isinstance(value, str | int | float | None) else f"a {kind} of {len(value)}")


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _parse_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"the whole number {text[:20]}… is too large")
    return int(text)


def _check_nesting(value: Any) -> None:
    """Raise ValueError where lists and mappings are nested too deeply, or a text has a lone surrogate."""
    level: list[Any] = [value]
    for depth in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, str):
                item.encode()
            elif isinstance(item, dict | list) and depth == MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
            elif isinstance(item, dict):
                _check_surrogates(item)
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        level = inner


def _count_largest_mapping(value: Any) -> int:
    """Return the number of keys of the largest mapping in a value."""
    if not isinstance(value, dict | list):
        return 0
    own, inner = (len(value), value.values()) if isinstance(value, dict) else (0, value)
    return max([own, *map(_count_largest_mapping, inner)])


def _check_surrogates(texts: Iterable[str]) -> None:
    for text in texts:
        text.encode()
