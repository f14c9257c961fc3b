"""Corpus format of Visual Dialog: a JSON file per split, or the two files of published code."""

from __future__ import annotations

from pipeline.data.corpus import SPLITS, Corpus
from pipeline.dialog.readers.visdial import ExpectedDialog, read_visdial, replace_captions
from pipeline.dialog.readers.visdial_h5 import read_visdial_h5
from pipeline.readers.corpus_format import CorpusFormat, CorpusSource
from pipeline.readers.karpathy import read_karpathy

FILES = {*SPLITS, "captions", *(f"{split}_relevance" for split in SPLITS)}


def _accepts(source: CorpusSource) -> bool:
    names = source.files.keys()
    has_files = {"train", "test"} <= names <= FILES or names - {"captions"} == {"data", "params"}
    return has_files and source.given == {"dialogs"}


def _read(source: CorpusSource) -> Corpus:
    """Read the dialogs; the captions of the file `captions`, if given, replace the dialogs' captions."""
    paths, expected = source.files, ExpectedDialog(**source.slice_settings["dialogs"])
    caption_corpus = read_karpathy(paths["captions"]) if "captions" in paths else None
    if "params" in paths:
        corpus = read_visdial_h5(paths["data"], paths["params"], expected)
        return corpus if caption_corpus is None else replace_captions(corpus, caption_corpus)
    files = {split: paths[split] for split in SPLITS if split in paths}
    relevance = {split: paths[f"{split}_relevance"] for split in SPLITS if f"{split}_relevance" in paths}
    return read_visdial(files, relevance, expected, caption_corpus)


VISDIAL = CorpusFormat(
    "visdial",
    "format visdial takes dialogs: and annotations {train: file, test: file}, optionally val, captions and "
    "{split}_relevance, or {data: visdial_data.h5, params: visdial_params.json}, optionally captions",
    _accepts,
    _read,
    has_vocabulary=lambda source: "params" in source.files,
    may_miss_images=False,
    may_be_corrupt=False,
)
