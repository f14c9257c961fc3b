"""Readers of corpora in their published forms, with checks; one module per form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.data.corpus import SPLITS, Corpus
from pipeline.errors import UserError
from pipeline.readers.checks import check_corpus
from pipeline.readers.coco import read_coco
from pipeline.readers.cocotalk import read_cocotalk, with_whole_captions
from pipeline.readers.flickr8k import read_flickr8k
from pipeline.readers.folder import read_folder
from pipeline.readers.karpathy import read_karpathy
from pipeline.readers.tgif import read_tgif

__all__ = ["read_coco", "read_cocotalk", "read_corpus", "read_flickr8k", "read_folder", "read_karpathy", "read_tgif"]


def read_corpus(
    name: str,
    form: str,
    root: Path,
    annotations: str | Sequence[str] | Mapping[str, str],
    images: Path | None,
    splits: str | None = None,
    shares: Mapping[str, float] | None = None,
    expected: Mapping[str, int] | None = None,
    corrupt: Collection[str] = (),
    dialogs: Mapping[str, int | None] | None = None,
    missing: float = 0.0,
) -> Corpus:
    """Read a corpus of the form `form`, set its name and check it (`check_corpus`).

    `annotations` and `splits` are paths below `root`. `dialogs` are the expected numbers of rounds per dialog and of
    options per round; None allows any number. Without `images` no image file is read. Raises UserError, one line with
    file and place, for any error.
    """
    root = Path(root)
    if form == "karpathy" and isinstance(annotations, str):
        corpus = read_karpathy(root / annotations)
    elif form == "coco":
        files: list[Path] | dict[str, Path]
        if isinstance(annotations, Mapping):
            files = {split: root / file for split, file in annotations.items()}
        else:
            files = [root / file for file in ([annotations] if isinstance(annotations, str) else annotations)]
        corpus = read_coco(files, images, None if splits is None else root / splits)
    elif form == "flickr8k" and isinstance(annotations, Mapping):
        lists = {split: root / annotations[split] for split in SPLITS}
        corpus = read_flickr8k(root / annotations["captions"], lists)
    elif form == "tgif" and isinstance(annotations, Mapping):
        corpus = read_tgif(root / annotations["captions"], {split: root / annotations[split] for split in SPLITS})
    elif form == "cocotalk" and isinstance(annotations, Mapping):
        corpus = read_cocotalk(root / annotations["json"], root / annotations["labels"])
        if "captions" in annotations:
            corpus = with_whole_captions(corpus, read_karpathy(root / annotations["captions"]))
    elif form == "visdial" and isinstance(annotations, Mapping):
        corpus = _read_visdial(root, annotations, dialogs or {})
    elif form == "folder" and isinstance(annotations, str):
        corpus = read_folder(root / annotations, images, shares)
    else:
        raise UserError(f"{root}: annotations are not of the shape that the form {form} takes")
    return replace(check_corpus(corpus, images, expected, corrupt, missing), name=name)


def _read_visdial(root: Path, annotations: Mapping[str, str], expected: Mapping[str, int | None]) -> Corpus:
    """Read the JSON files of each split, or the two files of published code; `captions` adds captions of the images."""
    # not at the top: these readers import modules of this package
    from pipeline.dialog.readers.visdial import ExpectedDialog, read_visdial, with_captions_of
    from pipeline.dialog.readers.visdial_h5 import read_visdial_h5

    wanted = ExpectedDialog(**expected)
    paths = {key: root / file for key, file in annotations.items()}
    whole = read_karpathy(paths["captions"]) if "captions" in paths else None
    if "params" in paths:
        corpus = read_visdial_h5(paths["data"], paths["params"], wanted)
        return corpus if whole is None else with_captions_of(corpus, whole)
    files = {split: paths[split] for split in SPLITS if split in paths}
    relevance = {split: paths[f"{split}_relevance"] for split in SPLITS if f"{split}_relevance" in paths}
    return read_visdial(files, relevance, wanted, whole)
