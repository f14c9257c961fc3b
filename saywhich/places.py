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
from typing import Any

from pipeline.data.tokens import TOKENIZER
from pipeline.errors import UserError
from pipeline.runtime.files import sha256
from pipeline.runtime.records import read_sealed
from pipeline.runtime.seal import check_seal

EXPORTED = "saywhich.json"  # what an exported folder holds, with digests
EYES = "features"  # the folder below an exported one
MAIN = "main"  # the set of features that speakers and their listeners see
WORDS = ("vocabulary.json", TOKENIZER, "manifest.json")  # of prepared data
FORM = 1  # of exported folders


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
    said = read_sealed(path, "export the model again", required=False)
    try:
        form, files, description = said["form"], dict(said["files"]), dict(said["model"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: not whole; export the model again") from None
    if form != FORM:
        raise UserError(f"{path}: of form {form}, and this version reads form {FORM}; export the model again")
    for name, wanted in files.items():
        _check(folder / name, wanted)
    return Place(folder, folder / "weights.safetensors", folder / EYES, folder, None, description)


def _check(path: Path, wanted: str) -> None:
    if not path.is_file():
        raise UserError(f"{path}: missing; copy the whole folder, or export the model again")
    if (found := sha256(path)) != wanted:
        raise UserError(
            f"{path}: the SHA-256 is {found[:16]}…, not {wanted[:16]}… as exported; copy it or export it again"
        )
