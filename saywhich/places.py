"""Where a trained model's files lie: in the repository that trained it, or in a folder of its own that was exported.

Nothing here needs PyTorch, which takes a second to import.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pipeline.data.tokens import TOKENIZER
from pipeline.errors import UserError
from pipeline.ranges import Natural
from pipeline.runtime.files import sha256
from pipeline.runtime.records import Digest, Line, Record, as_record, read_sealed
from pipeline.runtime.seal import check_seal
from pipeline.runtime.untrusted import inside

EXPORTED = "saywhich.json"  # what an exported folder holds, with digests
EYES = "features"  # the folder below an exported one
MAIN = "main"  # the set of features that speakers and their listeners see
WORDS = ("vocabulary.json", TOKENIZER, "manifest.json")  # of prepared data
READ = (  # of an exported folder
    *("weights.safetensors", "vocabulary.json", TOKENIZER),
    *(f"{EYES}/{name}" for name in ("manifest.json", "network.safetensors")),
)
AGAIN = "export the model again"
FORM = 1  # of exported folders


class Metric(Record):
    """A number of the test split, and the ends of its 95 % interval."""

    name: Line
    type: Line
    value: float
    low: float
    high: float


class Sample(Record):
    """A caption that the model gave an image of the test split."""

    file: Line
    caption: Annotated[str, Field(max_length=5000)]


class Data(Record):
    """What a model was trained on."""

    dataset: Line
    title: Line
    licence: Line
    weights: Line
    citation: Annotated[str, Field(max_length=5000)] | None = None
    images: dict[Line, Natural] | None = None
    captions: dict[Line, Natural] | None = None
    words: Natural | None = None


class Description(Record):
    """What an exported model says of itself."""

    name: Line
    version: Line
    network: Line
    data: Data
    settings: dict[Line, Any] = Field(default_factory=dict)
    method: Line | None = None
    signature: Annotated[str, Field(max_length=5000)] = ""
    images: Natural = 0
    metrics: Annotated[list[Metric], Field(max_length=1000)] = Field(default_factory=list)
    samples: Annotated[list[Sample], Field(max_length=1000)] = Field(default_factory=list)


class Exported(Record):
    """What saywhich.json holds: a description, and the digests of all other files that are read."""

    form: int
    model: Description
    files: Annotated[dict[Line, Digest], Field(min_length=3, max_length=100)]


@dataclass(frozen=True)
class Place:
    """The files of one model."""

    folder: Path
    weights: Path  # of speaker and listener
    eyes: Path  # the folder of the features' manifest, and what was trained or fitted for them
    words: Path  # the folder of the vocabulary
    root: Path | None  # the repository's folder data; None: it was exported
    description: Mapping[str, Any] = field(default_factory=dict)  # what is known of its training

    @cached_property
    def digest(self) -> str:
        """Names what the listener's vectors of photos depend on."""
        made = [sha256(self.weights), hashlib.sha256((self.eyes / "manifest.json").read_bytes()).hexdigest()]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()


def place_of(folder: Path) -> Place:
    """Where the files of the model in `folder` are; those of an exported one are what they were.

    Raises UserError where there is no model, something is missing, or a digest does not match.
    """
    if (folder / EXPORTED).is_file():
        return _exported(folder)
    if not (folder / "weights.safetensors").is_file():
        raise UserError(f"{folder}: no trained model; train one (make repro), or give a folder that was exported")
    root = _root(folder)
    place = Place(folder, folder / "weights.safetensors", root / "features" / MAIN, root / "prepared", root)
    check_seal(place.words, "run the prepare stage again", only=WORDS)
    if not (place.eyes / "manifest.json").is_file():
        raise UserError(f"{place.eyes}: there are no features; run the features stage")
    return place


def _root(folder: Path) -> Path:
    for above in folder.resolve().parents:
        if (above / "prepared" / "vocabulary.json").is_file():
            return above
    raise UserError(
        f"{folder}: neither an exported model (there is no {EXPORTED}) nor in a repository's data folder (no "
        "prepared/vocabulary.json above it)"
    )


def _exported(folder: Path) -> Place:
    path = folder / EXPORTED
    said = read_sealed(path, AGAIN, required=False)
    if (form := said.get("form")) != FORM:
        raise UserError(
            f"{path}: of form {json.dumps(form)[:20]}, and this version reads form {FORM}; export the model again"
        )
    exported = as_record(said, Exported, str(path), AGAIN)
    if unlisted := [name for name in READ if name not in exported.files and (folder / name).exists()]:
        raise UserError(f"{path}: has no digest of {unlisted[0]}; {AGAIN}")
    for name, wanted in exported.files.items():
        _check(inside(folder, name), wanted)
    description = exported.model.model_dump(exclude_none=True)
    return Place(folder, folder / "weights.safetensors", folder / EYES, folder, None, description)


def _check(path: Path, wanted: str) -> None:
    if not path.is_file():
        raise UserError(f"{path}: missing; copy the whole folder, or export the model again")
    if (found := sha256(path)) != wanted:
        raise UserError(
            f"{path}: the SHA-256 is {found[:16]}…, not {wanted[:16]}… as exported; copy it or export it again"
        )
