"""Corpora of the forms they are published in, read and checked; one file per form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.data.corpus import SPLITS, Corpus
from pipeline.errors import UserError
from pipeline.readers.checks import checked
from pipeline.readers.coco import read_coco
from pipeline.readers.cocotalk import read_cocotalk, with_whole_captions
from pipeline.readers.flickr8k import read_flickr8k
from pipeline.readers.folder import read_folder
from pipeline.readers.karpathy import read_karpathy

__all__ = ["read_coco", "read_cocotalk", "read_corpus", "read_flickr8k", "read_folder", "read_karpathy"]


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
) -> Corpus:
    """Read a corpus of the form `form`, call it `name` and check it (`checked`).

    `annotations` and `splits` are paths below `root`. Without `images` no image file is read. Raises UserError, one
    line with file and place, for whatever is wrong.
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
    elif form == "cocotalk" and isinstance(annotations, Mapping):
        corpus = read_cocotalk(root / annotations["json"], root / annotations["labels"])
        if "captions" in annotations:
            corpus = with_whole_captions(corpus, read_karpathy(root / annotations["captions"]))
    elif form == "folder" and isinstance(annotations, str):
        corpus = read_folder(root / annotations, images, shares)
    else:
        raise UserError(f"{root}: annotations are not of the shape that the form {form} takes")
    return replace(checked(corpus, images, expected, corrupt), name=name)
