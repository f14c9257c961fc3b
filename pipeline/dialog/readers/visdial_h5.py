"""Reader of visdial_data.h5 and visdial_params.json, which the code of VisDial and of HCIAE prepares."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.data.corpus import AnnotatedCaption, Corpus, CorpusImage
from pipeline.dialog.data.dialog_corpus import Dialogs, Words
from pipeline.dialog.readers.visdial import HELD_OUT, ExpectedDialog
from pipeline.dialog.readers.visdial_image_ids import image_ids
from pipeline.errors import UserError, reason
from pipeline.readers.annotation_file import JsonFile, show_json
from pipeline.runtime.untrusted import read_dataset, require_plain_file
from pipeline.vocabulary import UNK_WORD, Vocabulary

if TYPE_CHECKING:
    import h5py

SPLIT_OF = {"train": "train", "val": "test", "test": "test"}  # papers test on v0.9's val


class _Split(NamedTuple):
    """One split of the file; texts are word ids, padded with 0."""

    images: list[str]
    captions: np.ndarray  # (N, C)
    questions: np.ndarray  # (N, R, Q)
    answers: np.ndarray  # (N, R, A)
    options: np.ndarray  # (N, R, O): rows of `listed`, from 0
    truth: np.ndarray  # (N, R): index of the human answer's option, from 0
    listed: np.ndarray  # (U, A)


def read_visdial_h5(data: Path, params: Path, expected: ExpectedDialog) -> Corpus:
    """Read `ques_*`, `ans_*`, `ans_index_*`, `cap_*`, `opt_*` and `opt_list_*` (* is train or val), with their lengths.

    Options and the index of the human answer count from 0 (HCIAE's code) or from 1 (VisDial's code). The reader chooses
    the base at which the indexed option is the human answer. The vocabulary is `itow` in its order, so ids do not
    change. The last HELD_OUT dialogs of train are the validation split, and val is the test split. Images are not
    opened. Raises UserError with file, dialog and round.
    """
    import h5py

    words = JsonFile(params).data
    vocabulary = _vocabulary(words, params)
    try:
        with h5py.File(require_plain_file(data), "r") as file:
            splits = {name: _read_split(file, name, image_ids(words, name, params), data) for name in _names(file)}
    except FileNotFoundError:
        raise UserError(f"{data}: the file of dialogs is missing") from None
    except (OSError, KeyError) as error:
        raise UserError(f"{data}: not an HDF5 file as prepro.py writes it ({reason(error)})") from None
    if not splits:
        raise UserError(f"{data}: holds neither ques_train nor ques_val")
    spelled = np.array(["", *vocabulary.words], object)
    questions, answers = _TokenTexts(spelled, data, len(vocabulary)), _TokenTexts(spelled, data, len(vocabulary))
    images: list[CorpusImage] = []
    captions: list[Words] = []
    asked, offered, truth = [], [], []
    for name, arrays in splits.items():
        _check_numbers(arrays, expected, name, data)
        held_out = len(arrays.images) - HELD_OUT if name == "train" else len(arrays.images)
        if held_out <= 0:
            raise UserError(f"{data}: {len(arrays.images)} dialogs of train are too few to hold out {HELD_OUT}")
        for i, (image, row) in enumerate(zip(arrays.images, arrays.captions, strict=True)):
            caption = tuple(spelled[row[row > 0]])
            captions.append(caption)
            split = SPLIT_OF[name] if i < held_out else "val"
            images.append(CorpusImage(image, "", split, (AnnotatedCaption(" ".join(caption), caption),)))
        asked.append(questions.numbers(arrays.questions))
        offered.append(answers.numbers(arrays.listed)[arrays.options])
        truth.append(arrays.truth)
    dialogs = Dialogs(
        captions=tuple(captions),
        questions=questions.words,
        answers=answers.words,
        question=np.concatenate(asked),
        options=np.concatenate(offered),
        truth=np.concatenate(truth).astype(np.int32),
    )
    return Corpus("visdial", tuple(images), (data, params), vocabulary=vocabulary, attached=dialogs)


def _names(file: Mapping[str, Any]) -> list[str]:
    return [name for name in SPLIT_OF if f"ques_{name}" in file]


def _vocabulary(words: Mapping[str, Any], file: Path) -> Vocabulary:
    """Read the vocabulary `itow`, {"1": word, …}; the last word must be UNK, as in every published file."""
    spelled = words.get("itow")
    if not isinstance(spelled, dict) or not spelled:
        raise UserError(f'{file}: the object needs `itow`, {{"1": word, …}}, not {show_json(spelled)}')
    numbers = [str(n) for n in range(1, len(spelled) + 1)]
    if not all(isinstance(spelled.get(n), str) for n in numbers):
        raise UserError(f'{file}: itow must be {{"1": word, …}} with words alone')
    if spelled[numbers[-1]] != UNK_WORD:
        raise UserError(
            f'{file}: itow["{numbers[-1]}"] is {show_json(spelled[numbers[-1]])}; the last word must be {UNK_WORD}'
        )
    return Vocabulary(tuple(spelled[n] for n in numbers))


def _read_split(file: h5py.File, name: str, images: list[str], path: Path) -> _Split:
    def array(key: str) -> np.ndarray:
        return read_dataset(file, f"{key}_{name}")[:].astype(np.int64)

    questions, answers, captions, listed = (array(key) for key in ("ques", "ans", "cap", "opt_list"))
    if len(images) != len(questions):
        raise UserError(f"{path}: {len(questions)} dialogs in ques_{name}, but {len(images)} images in img_{name}")
    for key, tokens in (("ques", questions), ("ans", answers), ("cap", captions), ("opt", listed)):
        length = next((f"{key}_{word}_{name}" for word in ("len", "length") if f"{key}_{word}_{name}" in file), None)
        if length is not None:
            _check_lengths(read_dataset(file, length)[:].astype(np.int64), tokens, length, path)
    options, truth = array("opt"), array("ans_index")
    for first, index in product((0, 1), repeat=2):
        if _consistent(options - first, truth - index, listed, answers):
            return _Split(images, captions, questions, answers, options - first, truth - index, listed)
    at = _first_wrong(options, truth, listed, answers)
    if at is None or options.max() > len(listed) or truth.max() > options.shape[2]:
        raise UserError(
            f"{path}: an index of opt_{name} or ans_index_{name} is out of range: expected {len(listed)} answers and "
            f"{options.shape[2]} options, counted from 0 or from 1"
        )
    raise UserError(
        f"{path}, dialog {at[0]} of {name} (image {images[at[0]]}), round {at[1] + 1}: the human answer is not the "
        f"option that ans_index_{name} names, counted from 0 or from 1"
    )


def _check_lengths(lengths: np.ndarray, tokens: np.ndarray, name: str, path: Path) -> None:
    """Raise UserError where lengths differ from the numbers of words."""
    words = (tokens > 0).sum(-1)
    if lengths.shape != words.shape:
        raise UserError(f"{path}: {name} has the shape {lengths.shape}, but the texts have {words.shape}")
    if (wrong := lengths != words).any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"dialog {at[0]}, round {at[1] + 1}" if len(at) == 2 else f"row {at[0]}"
        limit = f"; at most {tokens.shape[-1]} were kept" if lengths[at] > tokens.shape[-1] else ""
        raise UserError(f"{path}, {place}: {name} says {lengths[at]} words, and {words[at]} are there{limit}")


def _consistent(options: np.ndarray, truth: np.ndarray, listed: np.ndarray, answers: np.ndarray) -> bool:
    """Return whether all indices are in range and every option `truth` is the human answer."""
    if min(options.min(), truth.min()) < 0 or options.max() >= len(listed) or truth.max() >= options.shape[2]:
        return False
    return not _wrong(options, truth, listed, answers).any()


def _wrong(options: np.ndarray, truth: np.ndarray, listed: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return a mask (N, R) of the rounds whose option `truth` is not the human answer."""
    chosen = listed[np.take_along_axis(options, truth[..., None], 2)[..., 0]]
    return (_words_first(chosen) != _words_first(answers)).any(-1)


def _first_wrong(
    options: np.ndarray, truth: np.ndarray, listed: np.ndarray, answers: np.ndarray
) -> tuple[int, int] | None:
    """Return the dialog and round of the first wrong answer at the more probable base; None without one."""
    base = int(truth.max() >= options.shape[2] or options.max() >= len(listed))
    options, truth = np.clip(options - base, 0, len(listed) - 1), np.clip(truth - base, 0, options.shape[2] - 1)
    places = np.argwhere(_wrong(options, truth, listed, answers))
    return (int(places[0, 0]), int(places[0, 1])) if len(places) else None


def _words_first(tokens: np.ndarray) -> np.ndarray:
    """Move words before the padding, which some files have first."""
    return np.take_along_axis(tokens, np.argsort(tokens == 0, -1, kind="stable"), -1)


def _check_numbers(split: _Split, expected: ExpectedDialog, name: str, path: Path) -> None:
    for key, number in (("rounds", split.options.shape[1]), ("options", split.options.shape[2])):
        wanted = getattr(expected, key)
        if wanted not in (None, number):
            raise UserError(f"{path}: opt_{name} has {number} {key}, and {wanted} are expected (prepare.dialogs.{key})")


class _TokenTexts:
    """List of distinct texts of word ids."""

    def __init__(self, spelled: np.ndarray, path: Path, words: int) -> None:
        self._spelled, self._path, self._known = spelled, path, words
        self._numbers: dict[bytes, int] = {}
        self._texts: list[Words] = []

    def numbers(self, tokens: np.ndarray) -> np.ndarray:
        """Return the indices (…) int32 of texts (…, T); raises UserError for an unknown id."""
        if tokens.size and (tokens.min() < 0 or tokens.max() > self._known):
            raise UserError(f"{self._path}: holds an id outside 0 … {self._known}, the words of itow")
        flat = _words_first(tokens).reshape(-1, tokens.shape[-1])
        indices = np.empty(len(flat), np.int32)
        for i, row in enumerate(flat):
            words = row[row > 0]
            key = words.tobytes()
            if key not in self._numbers:
                self._numbers[key] = len(self._texts)
                self._texts.append(tuple(self._spelled[words]))
            indices[i] = self._numbers[key]
        return indices.reshape(tokens.shape[:-1])

    @property
    def words(self) -> tuple[Words, ...]:
        return tuple(self._texts)
