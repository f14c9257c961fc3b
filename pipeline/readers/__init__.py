"""Readers of corpora, with checks: one module per format. `FORMATS` has the core's formats; slices add others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.data.corpus import Corpus
from pipeline.errors import UserError
from pipeline.readers.annotation_file import show_json
from pipeline.readers.checks import check_corpus
from pipeline.readers.coco import COCO, read_coco
from pipeline.readers.cocotalk import COCOTALK, read_cocotalk
from pipeline.readers.corpus_format import Annotations, CorpusFormat, CorpusSource
from pipeline.readers.flickr8k import FLICKR8K, read_flickr8k
from pipeline.readers.folder import FOLDER, read_folder
from pipeline.readers.karpathy import KARPATHY, read_karpathy
from pipeline.readers.tgif import TGIF, read_tgif

__all__ = ["read_coco", "read_cocotalk", "read_corpus", "read_flickr8k", "read_folder", "read_karpathy", "read_tgif"]

FORMATS = (KARPATHY, COCO, COCOTALK, FLICKR8K, FOLDER, TGIF)


def read_corpus(
    name: str,
    corpus_format: str,
    root: Path,
    annotations: Annotations,
    images: Path | None,
    splits: str | None = None,
    shares: Mapping[str, float] | None = None,
    expected: Mapping[str, int] | None = None,
    corrupt: Collection[str] = (),
    slice_settings: Mapping[str, Any] | None = None,
    missing: float = 0.0,
    formats: Sequence[CorpusFormat] = FORMATS,
) -> Corpus:
    """Read a corpus of the format `corpus_format`, set its name and check it (`check_corpus`).

    `expected`, `corrupt` and `missing` are arguments of `check_corpus`, and the other settings are fields of
    `CorpusSource`. Without `images` no image file is read. Raises UserError for any mistake, in one line that names the
    setting or the file, and the position in the file where there is one.
    """
    source = CorpusSource(Path(root), annotations, images, splits, shares, slice_settings or {})
    selected = next((each for each in formats if each.name == corpus_format), None)
    if selected is None:
        raise UserError(
            f"format {corpus_format}: must be one of {', '.join(each.name for each in formats)}; correct it"
        )
    if not selected.fits(source):
        names = show_json([*map(str, [annotations] if isinstance(annotations, str) else annotations)])
        found = ", ".join([f"annotations {names}", *sorted(source.given)])
        raise UserError(f"{root}: {selected.accepted_settings}; got {found}: correct them")
    return replace(check_corpus(selected.read(source), images, expected, corrupt, missing), name=name)
