"""Formats of published corpora: a format's settings and its reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.data.corpus import SPLITS, Corpus

Annotations = str | Sequence[str] | Mapping[str, str]
LIST_KEYS = {"captions", *SPLITS}  # a file of captions and a list of images for each split


@dataclass(frozen=True)
class CorpusSource:
    """Settings of `prepare` that decide how a corpus is read; annotations and splits are paths below `root`.

    `slice_settings` are the settings of formats that slices add, by key.
    """

    root: Path
    annotations: Annotations
    images: Path | None = None
    splits: str | None = None
    shares: Mapping[str, float] | None = None
    slice_settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """Return the path of the only annotation file."""
        assert isinstance(self.annotations, str)
        return self.root / self.annotations

    @property
    def files(self) -> dict[str, Path]:
        """Return the paths of the annotation files by key; {} where the annotations have no keys."""
        annotations = self.annotations if isinstance(self.annotations, Mapping) else {}
        return {key: self.root / file for key, file in annotations.items()}

    @property
    def given(self) -> set[str]:
        """Return the names of the optional settings that are given."""
        return {name for name in ("splits", "shares") if getattr(self, name) is not None} | self.slice_settings.keys()


@dataclass(frozen=True)
class CorpusFormat:
    """Format of a corpus: its name in `prepare.format`, a description of its settings in one line, and its reader.

    `fits` returns whether the reader takes the settings.
    """

    name: str
    accepted_settings: str
    fits: Callable[[CorpusSource], bool]
    read: Callable[[CorpusSource], Corpus]
    # whether the annotations contain a vocabulary
    has_vocabulary: Callable[[CorpusSource], bool] = lambda source: False
    has_texts: bool = True  # whether captions are texts as people wrote them
    may_miss_images: bool = True  # whether prepare.max_missing_share may allow image files to be missing
    may_be_corrupt: bool = True  # whether prepare.known_corrupt may name images


def is_one_file(source: CorpusSource) -> bool:
    """Return whether the annotations are one file, without other settings."""
    return isinstance(source.annotations, str) and not source.given


def has_image_lists(source: CorpusSource) -> bool:
    """Return whether the annotations are a file of captions and a list of images per split, without other settings."""
    return source.files.keys() == LIST_KEYS and not source.given
