"""Document frequencies of n-grams that were counted elsewhere: coco-train-idxs.p and coco-train-words.p.

prepro_ngrams.py of self-critical.pytorch pickles {"document_frequency": {("12", "7", "0"): 31.0}, "ref_len": 113287},
in how many of `ref_len` images each n-gram (n = 1 … 4) occurs: ids as text, "0" where a caption ends, or words and
"<eos>". A pickle may run whatever it likes when it is loaded; the reader here hands out three types and no more.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pipeline.errors import UserError
from pipeline.metrics.cider import ORDERS, Captions, pack
from pipeline.vocabulary import EOS, Vocabulary

EOS_WORD = "<eos>"
ADMITTED: Mapping[tuple[str, str], Any] = {
    ("collections", "defaultdict"): defaultdict,
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (float, int)},
}
FEW = 0.001  # of the words may be in more training images than the file says


def read_document_frequencies(path: Path, vocabulary: Vocabulary, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """Keys (K,) int64, sorted, and counts (K,) int32 of the file, as `cider.document_frequencies` gives them.

    `captions` are the training split's, by image, as ids. Raises UserError, one line, for a file that holds anything
    but such counts, and where it was counted over other images, with another vocabulary or over other captions.
    """
    path = Path(path)
    frequencies, images = _checked(_unpickled(path), path)
    if images != len(captions):
        _refuse(
            path,
            f"was counted over {images:,} images, but the training split has {len(captions):,}; take the file of the "
            "same split, or document_frequencies: null",
        )
    if all(ngram[0].isdecimal() for ngram in frequencies if len(ngram) == 1):
        ids = {str(number): number for number in range(len(vocabulary) + 1)}
    else:
        ids = {**vocabulary.ids, EOS_WORD: EOS}
    orders = list(_packed(frequencies, ids, vocabulary, path))
    keys, counts = (np.concatenate(parts) for parts in zip(*orders, strict=True))
    if (counts % 1).any():
        _refuse(path, "holds a count that is no whole number")
    if not 1 <= counts.min() <= counts.max() <= images:
        _refuse(path, f"holds counts from {counts.min():g} to {counts.max():g}, but there are {images:,} images")
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order].astype(np.int32)
    _check_fit(path, vocabulary, captions, keys, counts)
    return keys, counts


class _Unpickler(pickle.Unpickler):
    """Numbers, texts, tuples, dicts, and the types that are admitted; whatever else is named is not even imported."""

    def __init__(self, file: Any, path: Path):
        super().__init__(file, encoding="latin1")  # texts of Python 2 may be bytes
        self.path = path

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            _refuse(self.path, f"names {module}.{name}, which no file of document frequencies needs; it is not loaded")
        return ADMITTED[module, name]


def _unpickled(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            return _Unpickler(file, path).load()
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: the file of document frequencies is missing") from None
    except Exception as error:  # a broken pickle raises nearly anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path}: cannot be read as a pickle ({reason})") from None


def _checked(content: Any, path: Path) -> tuple[dict[tuple[str, ...], float], int]:
    """The mapping and the number of images, of the types that they are to be of."""
    if not isinstance(content, dict) or not {"document_frequency", "ref_len"} <= content.keys():
        _refuse(path, "is to hold a dict with document_frequency and ref_len")
    frequencies, images = content["document_frequency"], content["ref_len"]
    if not isinstance(images, int | float) or images != images // 1:
        _refuse(path, f"has ref_len {str(images)[:60]}, which is to be a number of images")
    if not isinstance(frequencies, dict) or not frequencies:
        _refuse(path, "has a document_frequency that is no mapping of n-grams to counts")
    for ngram, count in frequencies.items():
        if not isinstance(ngram, tuple) or not 1 <= len(ngram) <= ORDERS or {*map(type, ngram)} != {str}:
            _refuse(path, f"has the key {str(ngram)[:60]}, which is to be a tuple of 1 to {ORDERS} words")
        if type(count) not in (int, float):
            _refuse(path, f"counts {str(count)[:60]} for {ngram}, which is to be a number")
    return frequencies, int(images)


def _packed(
    frequencies: Mapping[tuple[str, ...], float], ids: Mapping[str, int], vocabulary: Vocabulary, path: Path
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Keys and counts of the n-grams of each order."""
    for order in range(1, ORDERS + 1):
        ngrams = [ngram for ngram in frequencies if len(ngram) == order]
        try:
            words = np.fromiter(map(ids.__getitem__, chain.from_iterable(ngrams)), np.int64, order * len(ngrams))
        except KeyError as unknown:
            _refuse(
                path,
                f"holds {unknown.args[0]!r}, which is none of the vocabulary's {len(vocabulary):,} words; it was "
                "counted with another vocabulary",
            )
        counts = np.fromiter((frequencies[ngram] for ngram in ngrams), np.float64, len(ngrams))
        yield pack(words.reshape(-1, order)), counts


def _check_fit(path: Path, vocabulary: Vocabulary, captions: Captions, keys: np.ndarray, counts: np.ndarray) -> None:
    """No word may be in more training images than the file says: captions are cut here, which only takes words away."""
    words = np.fromiter(chain.from_iterable(chain.from_iterable(captions)), np.int64)
    image = np.repeat(np.arange(len(captions)), [sum(map(len, each)) for each in captions])
    size = len(vocabulary) + 1
    here = np.bincount(np.unique(image * size + words) % size, minlength=size)
    there = np.zeros(size, np.int64)
    unigrams = keys < size
    there[keys[unigrams]] = counts[unigrams]
    more = np.flatnonzero(here > there)
    if len(more) > FEW * np.count_nonzero(here):
        word = more[0]
        _refuse(
            path,
            f"says that word {word}, {vocabulary.words[word - 1]!r}, is in {there[word]:,} images, but it is in "
            f"{here[word]:,} of the training split, and so for {len(more):,} words; it was counted with another "
            "vocabulary or over other captions",
        )


def _refuse(path: Path, problem: str) -> NoReturn:
    raise UserError(f"{path}: {problem}")
