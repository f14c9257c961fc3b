"""File locations of a trained model: in the repository that trained it, or in an exported folder.

This module must not import PyTorch, whose import takes a second.
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

from pipeline.data.tokenizer_vocabulary import TOKENIZER
from pipeline.errors import UserError
from pipeline.ranges import Natural
from pipeline.runtime.checksums import check_checksums, find_changed_input
from pipeline.runtime.files import compute_sha256
from pipeline.runtime.records import Digest, Line, Record, parse_record, read_checksummed
from pipeline.runtime.untrusted import resolve_inside

EXPORTED = "saywhich.json"  # the manifest of an exported folder, with digests
FEATURES = "features"  # the subfolder of features in an exported folder
CAPTIONER = "captioner"  # the subfolder of FEATURES with a model of transformers
MAIN = "main"  # the feature set of speakers and their listeners
WEIGHTS = "weights.safetensors"
VOCABULARY = "vocabulary.json"
VOCABULARY_FILES = (VOCABULARY, TOKENIZER, "manifest.json")  # in the folder of prepared data
FILES_WITH_DIGEST = (  # files of an exported folder that need a digest
    *(WEIGHTS, VOCABULARY, TOKENIZER),
    *(f"{FEATURES}/{name}" for name in ("manifest.json", "network.safetensors")),
)
REMEDY = "export the model again"
FORM = 1  # version of the format of exported folders


class OtherDataError(UserError):
    """The error for a model of a repository that was trained with another vocabulary or other features."""


class CardMetric(Record):
    """A metric on the test split, with the ends of its 95 % interval."""

    name: Line
    type: Line
    value: float
    low: float
    high: float


class CardSample(Record):
    """A generated caption of an image of the test split."""

    file: Line
    caption: Annotated[str, Field(max_length=5000)]


class TrainingData(Record):
    """The data set that a model was trained on."""

    dataset: Line
    title: Line
    licence: Line
    weights: Line
    citation: Annotated[str, Field(max_length=5000)] | None = None
    images: dict[Line, Natural] | None = None
    captions: dict[Line, Natural] | None = None
    words: Natural | None = None


class ModelDescription(Record):
    """The description in an exported model's manifest."""

    name: Line
    version: Line
    network: Line
    data: TrainingData
    settings: dict[Line, Any] = Field(default_factory=dict)
    method: Line | None = None
    signature: Annotated[str, Field(max_length=5000)] = ""
    images: Natural = 0
    metrics: Annotated[list[CardMetric], Field(max_length=1000)] = Field(default_factory=list)
    samples: Annotated[list[CardSample], Field(max_length=1000)] = Field(default_factory=list)


class ExportManifest(Record):
    """The content of saywhich.json: a description, and the digests of all other files that are read."""

    form: int
    model: ModelDescription
    files: Annotated[dict[Line, Digest], Field(min_length=3, max_length=100)]


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model."""

    folder: Path
    weights: Path  # weights of speaker and listener
    feature_extractor: Path  # the folder of the features' manifest, weights and fitted transforms
    vocabulary: Path  # the folder of the vocabulary
    root: Path | None  # the repository's folder `data`; None for an exported model
    description: Mapping[str, Any] = field(default_factory=dict)  # from an export's manifest; {} in a repository

    @cached_property
    def digest(self) -> str:
        """Return a digest of weights, features' manifest and words, which determine photo and caption embeddings."""
        words = [path for name in (VOCABULARY, TOKENIZER) if (path := self.vocabulary / name).is_file()]
        digests = [compute_sha256(path) for path in (self.weights, self.feature_extractor / "manifest.json", *words)]
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def is_trained(folder: Path) -> bool:
    """Return whether `folder` holds a trained model, exported or in its repository."""
    return any((folder / file).is_file() for file in (EXPORTED, WEIGHTS))


def locate_model(folder: Path) -> ModelFiles:
    """Locate the files of the model in `folder`, and check digests.

    In an exported folder all files of its manifest are checked. In a repository, the vocabulary and the data files
    with digests in the weights are checked. Raises UserError where there is no model, one of these files is missing,
    or a digest does not match. Raises OtherDataError where the data folder holds the data of another profile.
    """
    if (folder / EXPORTED).is_file():
        return _locate_exported(folder)
    if not (folder / WEIGHTS).is_file():
        raise UserError(
            f"{folder}: no trained model; train one (make repro), or give a folder that was exported, or a pretrained "
            "speaker and its listener"
        )
    root = _find_data_folder(folder)
    files = ModelFiles(folder, folder / WEIGHTS, root / "features" / MAIN, root / "prepared", root)
    check_checksums(files.vocabulary, "run the prepare stage again", only=VOCABULARY_FILES)
    if not (files.feature_extractor / "manifest.json").is_file():
        raise UserError(f"{files.feature_extractor}: there are no features; run the features stage")
    if changed := find_changed_input(files.weights, root):
        raise OtherDataError(
            f"{folder}: was trained with other data than {changed}, which another profile or start wrote; "
            "train it again (make repro with its PROFILE), or remove it"
        )
    return files


def _find_data_folder(folder: Path) -> Path:
    for parent in folder.resolve().parents:
        if (parent / "prepared" / VOCABULARY).is_file():
            return parent
    raise UserError(
        f"{folder}: is neither an exported model (there is no {EXPORTED}) nor in a repository's data folder (no "
        "prepared/vocabulary.json above it); give a folder of data/models, or export the model"
    )


def _locate_exported(folder: Path) -> ModelFiles:
    path = folder / EXPORTED
    manifest = read_checksummed(path, REMEDY, required=False)
    if (form := manifest.get("form")) != FORM:
        raise UserError(
            f"{path}: has the form {json.dumps(form)[:20]}, and this version reads form {FORM}; export the model again"
        )
    exported = parse_record(manifest, ExportManifest, str(path), REMEDY)
    captioner = (path for path in (folder / FEATURES / CAPTIONER).rglob("*") if path.is_file())
    names = [name for name in FILES_WITH_DIGEST if (folder / name).exists()]
    names += [path.relative_to(folder).as_posix() for path in captioner]
    if unlisted := [name for name in names if name not in exported.files]:
        raise UserError(f"{path}: has no digest of {unlisted[0]}; {REMEDY}")
    for name, digest in exported.files.items():
        _check_digest(resolve_inside(folder, name), digest)
    description = exported.model.model_dump(exclude_none=True)
    return ModelFiles(folder, folder / WEIGHTS, folder / FEATURES, folder, None, description)


def _check_digest(path: Path, expected: str) -> None:
    if not path.is_file():
        raise UserError(f"{path}: is missing; copy the whole folder, or export the model again")
    if (actual := compute_sha256(path)) != expected:
        raise UserError(
            f"{path}: the SHA-256 is {actual[:16]}…, not {expected[:16]}… as exported; copy it or export it again"
        )
