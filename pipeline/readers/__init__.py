"""Corpora, whatever the form they are published in, read and checked into one; a form is a file here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.data.corpus import Corpus
from pipeline.errors import UserError
from pipeline.readers.checks import Known, checked
from pipeline.readers.coco import read_coco
from pipeline.readers.cocotalk import read_cocotalk, with_whole_captions
from pipeline.readers.flickr8k import read_flickr8k
from pipeline.readers.folder import read_folder
from pipeline.readers.karpathy import read_karpathy

__all__ = ["Known", "read_coco", "read_cocotalk", "read_corpus", "read_flickr8k", "read_folder", "read_karpathy"]


def read_corpus(
    name: str,
    form: str,
    root: Path,
    annotations: str | Sequence[str] | Mapping[str, str],
    images: Path | None,
    splits: str | None = None,
    shares: Mapping[str, float] | None = None,
    known: Known = Known(),
) -> Corpus:
    """Read a corpus of the form `form` and call it `name`; `annotations` and `splits` lie below `root`.

    Without `images` no image file is looked for.
    """
    root = Path(root)
    if form == "karpathy" and isinstance(annotations, str):
        corpus = read_karpathy(root / annotations, images, known)
    elif form == "coco":
        if isinstance(annotations, Mapping):
            files: Path | list[Path] | dict[str, Path] = {split: root / file for split, file in annotations.items()}
        elif isinstance(annotations, str):
            files = root / annotations
        else:
            files = [root / file for file in annotations]
        corpus = read_coco(files, images, None if splits is None else root / splits, known)
    elif form == "flickr8k" and isinstance(annotations, Mapping):
        captions, *lists = (root / annotations[part] for part in ("captions", "train", "val", "test"))
        corpus = read_flickr8k(captions, dict(zip(("train", "val", "test"), lists, strict=True)), images, known)
    elif form == "cocotalk" and isinstance(annotations, Mapping):
        corpus = read_cocotalk(root / annotations["json"], root / annotations["labels"])
        if "captions" in annotations:
            corpus = with_whole_captions(corpus, read_karpathy(root / annotations["captions"], None))
        corpus = checked(corpus, images, known)
    elif form == "folder" and isinstance(annotations, str):
        corpus = read_folder(root / annotations, images, shares, known)
    else:
        raise UserError(f"{root}: annotations are not of the shape that the form {form} takes")
    return replace(corpus, name=name)
