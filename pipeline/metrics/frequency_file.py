"""Reader of published document frequencies of n-grams: coco-train-idxs.p and coco-train-words.p.

prepro_ngrams.py of self-critical.pytorch pickles {"document_frequency": {("12", "7", "0"): 31.0}, "ref_len": 113287}:
the number of the `ref_len` images in which each n-gram (n = 1 … 4) occurs. N-grams are ids as text, with "0" at the end
of a caption, or words and "<eos>". A pickle may run any code when it is loaded, so this reader admits three types only.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import UserError, summarise_error
from pipeline.metrics.cider import MAX_ID, ORDERS, Captions, pack_ngrams
from pipeline.vocabulary import EOS, Vocabulary

EOS_WORD = "<eos>"
ADMITTED: Mapping[tuple[str, str], Any] = {
    ("collections", "defaultdict"): defaultdict,
    **{(module, kind.__name__): kind for module in ("builtins", "__builtin__") for kind in (float, int)},
}
MAX_COUNT = 2**31 - 1  # largest int32
MAX_UNDERCOUNTED_SHARE = 0.001  # tolerated share of words that occur in more training images than the file counts


def read_document_frequencies(path: Path, vocabulary: Vocabulary, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    """Return keys (K,) int64, sorted, and counts (K,) int32 of the file, as from `compute_document_frequencies`.

    `captions` are the training split's, by image, as ids. Raises UserError if the file is missing, or has other content
    than such counts, or an id above MAX_ID. Raises UserError, too, if the counts are from another number of images,
    another vocabulary or other captions.
    """
    try:
        with open(path, "rb") as file:
            content = _Unpickler(file, encoding="latin1").load()  # Python 2 texts may be bytes
    except FileNotFoundError:
        raise UserError(
            f"{path}: the file of document frequencies is missing; copy it there, or set "
            "prepare.document_frequencies: null"
        ) from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # a broken pickle raises nearly anything
        raise UserError(f"{path}: cannot be read as a pickle ({summarise_error(error)}); get the file again") from None
    try:
        return _convert(content, vocabulary, captions)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


class _Unpickler(pickle.Unpickler):
    """Unpickler that imports the admitted types and nothing else; texts, tuples and dicts need no import."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise UserError(
                f"names {module}.{name}, which no file of document frequencies needs and which is not loaded; get the "
                "file again"
            )
        return ADMITTED[module, name]


def _convert(content: Any, vocabulary: Vocabulary, captions: Captions) -> tuple[np.ndarray, np.ndarray]:
    frequencies, images = _check_content(content)
    if images != len(captions):
        raise UserError(
            f"was counted over {images:,} images, but the training split has {len(captions):,}; use the file of the "
            "same split, or prepare.document_frequencies: null"
        )
    if all(ngram[0].isdecimal() for ngram in frequencies if len(ngram) == 1):
        ids = {str(number): number for number in range(len(vocabulary) + 1)}
    else:
        ids = {**vocabulary.ids, EOS_WORD: EOS}
    parts = list(_pack(frequencies, ids))
    keys, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if (counts % 1).any():
        raise UserError("holds a count that is not an integer; counts must be numbers of images: get the file again")
    if not 1 <= counts.min() <= counts.max() <= images:
        raise UserError(
            f"holds counts from {counts.min():g} to {counts.max():g}, but there are {images:,} images; get the file "
            "again"
        )
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order].astype(np.int32)
    _check_fit(vocabulary, captions, keys, counts)
    return keys, counts


def _check_content(content: Any) -> tuple[dict[tuple[str, ...], float], int]:
    """Return the mapping and the number of images. Raises UserError for values of other types."""
    if not isinstance(content, dict) or not {"document_frequency", "ref_len"} <= content.keys():
        raise UserError(
            "must hold a dict with document_frequency and ref_len; name a file that prepro_ngrams.py has written"
        )
    frequencies, images = content["document_frequency"], content["ref_len"]
    if not _is_count(images):
        raise UserError(f"has ref_len {_show(images)}, which must be a number of images; get the file again")
    if not isinstance(frequencies, dict) or not frequencies:
        raise UserError("has a document_frequency that is no mapping of n-grams to counts; get the file again")
    for ngram, count in frequencies.items():
        if not isinstance(ngram, tuple) or not 1 <= len(ngram) <= ORDERS or {*map(type, ngram)} != {str}:
            raise UserError(
                f"has the key {_show(ngram)}, which must be a tuple of 1 to {ORDERS} words; get the file again"
            )
        if type(count) not in (int, float) or abs(count) > MAX_COUNT:
            raise UserError(
                f"counts {_show(count)} for {_show(ngram)}, which must be a number of images; get the file again"
            )
    return frequencies, int(images)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) <= MAX_COUNT and value == value // 1


def _show(value: Any) -> str:
    """Return the beginning of a value's text, or its type where Python makes no text of it."""
    try:
        return str(value)[:60]
    except (ValueError, RecursionError):  # an integer of more than 4,300 digits, or very deep nesting
        return f"of type {type(value).__name__}"


def _pack(
    frequencies: Mapping[tuple[str, ...], float], ids: Mapping[str, int]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield keys and counts of the n-grams of each order. Raises UserError for other words, or ids above MAX_ID."""
    for order in range(1, ORDERS + 1):
        ngrams = [ngram for ngram in frequencies if len(ngram) == order]
        try:
            words = np.fromiter(map(ids.__getitem__, chain.from_iterable(ngrams)), np.int64, order * len(ngrams))
        except KeyError as error:
            raise UserError(
                f"holds {error.args[0][:60]!r}, which is none of the vocabulary's {len(ids) - 1:,} words; use "
                "the file of the same vocabulary, or prepare.document_frequencies: null"
            ) from None
        if words.max(initial=0) > MAX_ID:
            raise UserError(
                f"holds the id {words.max()}, but CIDEr takes ids up to {MAX_ID:,}; use a vocabulary of fewer words"
            )
        counts = np.fromiter((frequencies[ngram] for ngram in ngrams), np.float64, len(ngrams))
        yield pack_ngrams(words.reshape(-1, order)), counts


def _check_fit(vocabulary: Vocabulary, captions: Captions, keys: np.ndarray, counts: np.ndarray) -> None:
    """Raise UserError if too many words occur in more training images than the file counts.

    Clipping of captions only removes words, so it does not raise this error.
    """
    size = len(vocabulary) + 1
    image_counts, file_counts = np.zeros((2, size), np.int64)
    for image in captions:
        image_counts[np.unique(np.fromiter(chain.from_iterable(image), np.int64))] += 1
    unigrams = keys < size
    file_counts[keys[unigrams]] = counts[unigrams]
    undercounted = np.flatnonzero(image_counts > file_counts)
    if len(undercounted) > MAX_UNDERCOUNTED_SHARE * np.count_nonzero(image_counts):
        word = undercounted[0]
        raise UserError(
            f"counts word {word}, {vocabulary.words[word - 1]!r}, in {file_counts[word]:,} images, but it is in "
            f"{image_counts[word]:,} images of the training split ({len(undercounted):,} words are counted too low); "
            "use the file of the same vocabulary and captions"
        )
