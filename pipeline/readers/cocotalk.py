"""Reader of cocotalk.json and its labels, the format of neuraltalk2, self-critical.pytorch and DiscCaptioning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.data.corpus import AnnotatedCaption, Corpus, CorpusImage
from pipeline.errors import UserError, summarise_error
from pipeline.readers.annotation_file import JsonFile, UniqueNames, show_json
from pipeline.readers.corpus_format import CorpusFormat, CorpusSource
from pipeline.readers.karpathy import read_karpathy
from pipeline.readers.splits import count_restval, parse_split
from pipeline.runtime.untrusted import read_dataset, require_plain_file
from pipeline.vocabulary import UNK_WORD, Vocabulary

if TYPE_CHECKING:
    import h5py

LABELS, FIRST, LAST, LENGTH = "labels", "label_start_ix", "label_end_ix", "label_length"
REMEDY = "get the file again"


def read_cocotalk(annotations: Path, labels: Path) -> Corpus:
    """Read `images` and `ix_to_word` of cocotalk.json, and the captions of cocotalk_label.h5 in this vocabulary.

    The array `labels` (N, T) in the file has ids from 1, padded with 0 and truncated to T words. `label_start_ix` and
    `label_end_ix` (B,) are the numbers of an image's first and last caption, from 1. The vocabulary keeps the file's
    order, so that ids do not change; the split restval joins train. Images are not opened. Source: prepro_labels.py of
    self-critical.pytorch. Raises UserError with file and position for damaged or inconsistent files.
    """
    annotations, labels = Path(annotations), Path(labels)
    source = JsonFile(annotations)
    vocabulary = _read_vocabulary(source.data, annotations)
    rows = source.entries("images")
    tokens, first = _read_labels(labels, len(rows), len(vocabulary), annotations)
    words = np.array(["", *vocabulary.words], object)
    captions = [tuple(words[row[row > 0]]) for row in tokens]
    ids, corpus_images = UniqueNames("image id"), []
    for index, row in enumerate(rows):
        image = str(row.get("id", int | str))
        ids.add(image, row)
        image_captions = captions[first[index] : first[index + 1]]
        split = parse_split(row.get("split", str), row)
        file = row.get("file_path", str, "")
        annotated = tuple(AnnotatedCaption(" ".join(caption), caption) for caption in image_captions)
        corpus_images.append(CorpusImage(image, file, split, annotated))
    corpus = Corpus(annotations.stem, tuple(corpus_images), (annotations, labels), count_restval(rows))
    return replace(corpus, vocabulary=vocabulary, max_caption_words=tokens.shape[1])


def restore_captions(corpus: Corpus, original: Corpus) -> Corpus:
    """Replace the captions of `corpus`, truncated and with UNK, by their originals in `original`.

    Splits, image files and vocabulary stay. Raises UserError where `original` lacks an image or has other captions.
    """
    assert corpus.vocabulary is not None
    encode, corpus_images = corpus.vocabulary.encode, []
    annotated = {image.id: image.captions for image in original.images}
    for image in corpus.images:
        captions = annotated.get(image.id)
        if captions is None:
            raise UserError(
                f"{original.sources[0]}: image {image.id} of {corpus.sources[0]} is missing; name the file from which "
                "cocotalk.json was made"
            )
        tokens = [encode(caption.words) for caption in image.captions]
        if [encode(caption.words[: corpus.max_caption_words]) for caption in captions] != tokens:
            problem = f"the captions of image {image.id} are not those of {corpus.sources[1]}"
            raise UserError(f"{original.sources[0]}: {problem}; name the file from which cocotalk.json was made")
        corpus_images.append(replace(image, captions=captions))
    return replace(
        corpus, images=tuple(corpus_images), sources=(*corpus.sources, *original.sources), max_caption_words=None
    )


def _read_vocabulary(data: Mapping[str, Any], file: Path) -> Vocabulary:
    """Read the vocabulary `ix_to_word`, "1" … "V" with UNK last, in its order; raises UserError for other content."""
    words = data.get("ix_to_word")
    if not isinstance(words, dict) or not words:
        raise UserError(f'{file}: the object needs `ix_to_word`, {{"1": word, …}}, not {show_json(words)}; {REMEDY}')
    if data.get("bpe"):
        raise UserError(f"{file}: its tokens are subwords (`bpe`), which cannot be read here; write whole words")
    ids: dict[str, int] = {}
    for index in range(1, len(words) + 1):
        word = words.get(str(index))
        if not isinstance(word, str) or word.split() != [word]:
            raise UserError(f'{file}: ix_to_word["{index}"] must be a word, not {show_json(word)}; {REMEDY}')
        if word in ids:
            problem = f"is {show_json(word)}, which is word {ids[word]} already; remove one"
            raise UserError(f'{file}: ix_to_word["{index}"] {problem}')
        ids[word] = index
    if word != UNK_WORD:
        raise UserError(
            f'{file}: the last word, ix_to_word["{len(words)}"], is {show_json(word)} and not {UNK_WORD}; '
            f"the last word stands for unknown words: write {UNK_WORD} there"
        )
    return Vocabulary(tuple(ids))


def _read_labels(
    file: Path, image_count: int, vocabulary_size: int, annotations: Path
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids (N, T) of all captions, and the rows (B + 1,) of each image's first caption; the last row is N.

    Raises UserError where the arrays are missing, damaged or inconsistent, and where there are no images.
    """
    import h5py

    try:
        with h5py.File(require_plain_file(file), "r") as h5_file:
            tokens, first, last = (_read_integers(h5_file, name) for name in (LABELS, FIRST, LAST))
            lengths = _read_integers(h5_file, LENGTH) if LENGTH in h5_file else None
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{file}: the file of labels is missing; copy it there") from None
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:  # errors of h5py
        raise UserError(
            f"{file}: not an HDF5 file with {LABELS}, {FIRST} and {LAST} ({summarise_error(error)}); {REMEDY}"
        ) from None
    if tokens.ndim != 2 or first.shape != (image_count,) or last.shape != (image_count,):
        raise UserError(
            f"{file}: {LABELS} {tokens.shape}, {FIRST} {first.shape} and {LAST} {last.shape} do not belong to the "
            f"{image_count} images of {annotations}; give the labels of these images"
        )
    if image_count == 0:
        raise UserError(f"{annotations}: `images` is empty; expected one image or more")
    expected_first = np.append(1, last + 1)[:-1]
    if (first != expected_first).any():
        index = (first != expected_first).argmax()
        hint = "each image's captions must follow those of the image before it"
        raise UserError(f"{file}: {FIRST}[{index}] is {first[index]}, not {expected_first[index]}; {hint}; {REMEDY}")
    if (last < first).any():
        index = (last < first).argmax()
        numbers = f"{FIRST} {first[index]}, {LAST} {last[index]}"
        raise UserError(f"{file}: image {index} has no captions ({numbers}); {REMEDY}")
    if last[-1] != len(tokens):
        raise UserError(f"{file}: {LABELS} has {len(tokens)} captions, but {LAST} ends at {last[-1]}; {REMEDY}")
    is_word = tokens > 0
    length = is_word.sum(axis=1)
    expected: np.ndarray | int = length
    if lengths is not None:
        expected = lengths if lengths.shape == length.shape else -1  # no caption has the length -1
    for problem, wrong in (
        (
            f"holds an id outside 0 … {vocabulary_size}, the words of {annotations}",
            ((tokens < 0) | (tokens > vocabulary_size)).any(axis=1),
        ),
        ("goes on after its end (0)", (is_word & (np.cumsum(~is_word, axis=1) > 0)).any(axis=1)),
        ("is empty", length == 0),
        (f"has another length than {LENGTH} states", length != expected),
    ):
        if wrong.any():
            raise UserError(f"{file}: {LABELS}[{wrong.argmax()}] {problem}; {REMEDY}")
    return tokens, np.append(0, last)


def _read_integers(file: h5py.File, name: str) -> np.ndarray:
    """Return the array `name` as int64. Raises UserError for other numbers, and as `read_dataset` does."""
    values = read_dataset(file, name)[:]
    with np.errstate(invalid="ignore"):  # NaN and infinity differ from their integers, and are reported
        integers: np.ndarray = values.astype(np.int64)
    if (wrong := integers != values).any():
        raise UserError(
            f"{file.filename}: {name} holds {values[wrong][0]:g}; expected signed 64-bit integers; {REMEDY}"
        )
    return integers


def _fits(source: CorpusSource) -> bool:
    return source.files.keys() - {"captions"} == {"json", "labels"} and not source.given


def _read(source: CorpusSource) -> Corpus:
    corpus = read_cocotalk(source.files["json"], source.files["labels"])
    if "captions" in source.files:
        return restore_captions(corpus, read_karpathy(source.files["captions"]))
    return corpus


COCOTALK = CorpusFormat(
    "cocotalk",
    "format cocotalk takes annotations: {json: file, labels: file}, optionally with captions: file there, and neither "
    "splits nor shares",
    _fits,
    _read,
    has_vocabulary=lambda source: True,
    has_texts=False,
)
