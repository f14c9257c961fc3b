"""Reader of Pascal-50S, people's choices between two captions: pair_pascal.mat and consensus_pascal.mat in a folder.

The files are those of Vedantam et al. (2015). Each pair of captions has 48 votes. A vote is for the caption that a
person finds more similar to one of 48 references.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.records import read_bytes

EXTENSION = ".mat"
MAX_FILE_BYTES = 2**28  # bytes of a file
MAX_UNPACKED_BYTES = 2**29  # bytes of the unpacked variables
HEADER, COMPRESSED = 128, 15  # bytes before the variables of a MATLAB 5 file, and the type of a compressed variable
PAIRS, VOTES = "pair_pascal.mat", "consensus_pascal.mat"
KINDS = {1: "HC", 2: "HI", 3: "HM", 4: "MM"}
REFERENCES = 5  # papers use 5 of the 48 references; here the first 5


@dataclass(frozen=True)
class CaptionChoice:
    """Two captions of an image, the votes of each, and references.

    `kind` is HC for two human captions, and HI if one of them is of another image. It is HM for a human and a machine
    caption, and MM for two machine captions.
    """

    image: str
    captions: tuple[str, str]
    votes: tuple[int, int]
    kind: str
    references: Sequence[str]


def read_pascal_50s(path: Path) -> list[CaptionChoice]:
    """Read the pairs and their votes; `path` is either of the two files.

    Raises UserError for missing files, files that are too large, and files of another form.
    """
    pairs_file, votes_file = path.with_name(PAIRS), path.with_name(VOTES)
    pairs, votes = _load_variables(pairs_file, "new_input", "category"), _load_variables(votes_file, "triplets")
    try:
        choices = list(_parse_choices(*pairs, *votes))
    except Exception as error:  # values of another form can raise any exception
        raise UserError(
            f"{pairs_file}, {VOTES}: are not the files of Pascal-50S ({summarise_error(error)}); give those files"
        ) from None
    return choices


def _parse_choices(pairs: np.ndarray, kinds: np.ndarray, triplets: np.ndarray) -> Iterator[CaptionChoice]:
    rows, vote_records = pairs.reshape(-1), triplets.reshape(-1)
    if not len(rows) or not len(vote_records) or len(vote_records) % len(rows):
        found = f"{len(rows)} pairs and {len(vote_records)} votes"
        raise ValueError(f"expected equally many votes for each pair, found {found}")
    votes_per_pair = len(vote_records) // len(rows)
    for number, (row, kind) in enumerate(zip(rows, kinds.reshape(-1), strict=True)):
        image, *captions = map(_parse_text, _list_fields(row))
        first, second = captions
        references, winners = [], []
        for record in vote_records[number * votes_per_pair : (number + 1) * votes_per_pair]:
            reference, left, right, winner = _list_fields(record)
            if (_parse_text(left), _parse_text(right)) != (first, second):
                raise ValueError(f"votes of pair {number + 1} are on other captions")
            references.append(_parse_text(reference))
            winners.append(_unwrap(winner))
        if set(winners) - {1, -1}:
            raise ValueError(f"a vote of pair {number + 1} is neither 1 nor -1")
        if kind not in KINDS:
            raise ValueError(f"pair {number + 1} is of the kind {kind}, not 1 to {len(KINDS)}")
        votes = winners.count(1), winners.count(-1)
        yield CaptionChoice(image, (first, second), votes, KINDS[kind], references[:REFERENCES])


def _load_variables(file: Path, *names: str) -> list[np.ndarray]:
    """Return the variables `names` of a MATLAB file. Raises UserError where the file does not hold them."""
    from scipy.io import loadmat

    content = read_bytes(file, f"put the published {PAIRS} and {VOTES} into one folder", MAX_FILE_BYTES)
    try:
        _check_unpacked(content)
        variables = loadmat(io.BytesIO(content), variable_names=names)
        return [variables[name] for name in names]
    except Exception as error:  # a damaged file can raise any exception
        raise UserError(
            f"{file}: expected the variables {', '.join(names)} of MATLAB, which cannot be read "
            f"({summarise_error(error)}); get the file again"
        ) from None


def _check_unpacked(content: bytes) -> None:
    """Raise ValueError where a file's compressed variables, unpacked, have more than MAX_UNPACKED_BYTES bytes."""
    order, offset, remaining = "<" if content[126:128] == b"IM" else ">", HEADER, MAX_UNPACKED_BYTES
    while offset + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, offset)
        if kind == COMPRESSED:
            unpacker, part = zlib.decompressobj(), content[offset + 8 : offset + 8 + size]
            while part:
                remaining -= len(unpacker.decompress(part, 2**20))
                part = unpacker.unconsumed_tail
                if remaining < 0:
                    raise ValueError(f"its variables have more than {MAX_UNPACKED_BYTES:,} bytes")
        offset += 8 + size


def _list_fields(value: Any) -> list[Any]:
    """Return the fields of a structure, or the elements of a cell."""
    if isinstance(value, np.void):
        return [value[name] for name in value.dtype.names or ()]
    return list(np.asarray(value, object).reshape(-1))


def _unwrap(value: Any) -> Any:
    """Return the value inside cells of one element."""
    while isinstance(value, np.ndarray):
        (value,) = value.reshape(-1)
    return value


def _parse_text(value: Any) -> str:
    text = _unwrap(value)
    if not isinstance(text, str):
        raise TypeError(f"expected a text as caption, got {type(text).__name__}")
    return " ".join(text.split())
