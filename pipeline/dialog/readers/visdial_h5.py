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
from pipeline.dialog.readers.visdial_image_ids import read_image_ids
from pipeline.errors import UserError, summarise_error
from pipeline.readers.annotation_file import FileRow, JsonFile, UniqueNames, show_json
from pipeline.runtime.untrusted import read_dataset, require_plain_file
from pipeline.vocabulary import UNK_WORD, Vocabulary

if TYPE_CHECKING:
    import h5py

REMEDY = "use the files of prepro.py"
SPLIT_OF = {"train": "train", "val": "test", "test": "test"}  # papers test on v0.9's val


class _Split(NamedTuple):
    """One split of the file; texts are word ids, padded with 0."""

    images: list[str]
    captions: np.ndarray  # (N, C)
    questions: np.ndarray  # (N, R, Q)
    answers: np.ndarray  # (N, R, A)
    options: np.ndarray  # (N, R, O): rows of `answer_list`, from 0
    truth: np.ndarray  # (N, R): index of the human answer's option, from 0
    answer_list: np.ndarray  # (U, A): distinct answers


def read_visdial_h5(data: Path, params: Path, expected: ExpectedDialog) -> Corpus:
    """Read `ques_*`, `ans_*`, `ans_index_*`, `cap_*`, `opt_*` and `opt_list_*`, with lengths of texts where present.

    The suffix * is train, val or test; any of these splits may be missing. Options and the index of the human answer
    are counted from 0 (HCIAE's code) or from 1 (VisDial's code). The reader chooses the bases at which the indexed
    option is the human answer. The vocabulary is `itow` (HCIAE) or `ind2word` (VisDial) in its order, so ids do not
    change. The last HELD_OUT dialogs of train are the validation split; val and test are the test split. Images are not
    opened. Raises UserError for a missing or malformed file, and for too few dialogs of train. For a wrong human answer
    or a repeated image, the error names the dialog.
    """
    import h5py

    content = JsonFile(params).data
    vocabulary = _read_vocabulary(content, params)
    try:
        with h5py.File(require_plain_file(data), "r") as file:
            splits = {
                name: _read_split(file, name, read_image_ids(content, name, params), len(vocabulary), data)
                for name in _list_splits(file)
            }
    except FileNotFoundError:
        raise UserError(f"{data}: the file of dialogs is missing; correct its path") from None
    except (OSError, KeyError) as error:
        raise UserError(
            f"{data}: not an HDF5 file as prepro.py writes it ({summarise_error(error)}); {REMEDY}"
        ) from None
    if not splits:
        raise UserError(f"{data}: expected ques_train, ques_val or ques_test, found none; {REMEDY}")
    spellings = np.array(["", *vocabulary.words], object)
    questions, answers, unique_images = _TokenTexts(spellings), _TokenTexts(spellings), UniqueNames("image")
    images: list[CorpusImage] = []
    captions: list[Words] = []
    question_parts, option_parts, truth_parts = [], [], []
    for name, arrays in splits.items():
        expected = _check_numbers(arrays, expected, name, data)
        first_held_out = len(arrays.images) - HELD_OUT if name == "train" else len(arrays.images)
        if first_held_out <= 0:
            raise UserError(
                f"{data}: {len(arrays.images)} dialogs of train are too few to hold out {HELD_OUT}; add dialogs"
            )
        for i, (image, row) in enumerate(zip(arrays.images, arrays.captions, strict=True)):
            unique_images.add(image, FileRow(data, i, f"{name} dialog"))
            caption = tuple(spellings[row[row > 0]])
            captions.append(caption)
            split = SPLIT_OF[name] if i < first_held_out else "val"
            images.append(CorpusImage(image, "", split, (AnnotatedCaption(" ".join(caption), caption),)))
        question_parts.append(questions.add(arrays.questions))
        option_parts.append(answers.add(arrays.answer_list)[arrays.options])
        truth_parts.append(arrays.truth)
    dialogs = Dialogs(
        captions=tuple(captions),
        questions=questions.texts,
        answers=answers.texts,
        question=np.concatenate(question_parts),
        options=np.concatenate(option_parts),
        truth=np.concatenate(truth_parts).astype(np.int32),
    )
    return Corpus("visdial", tuple(images), (data, params), vocabulary=vocabulary, attached=dialogs)


def _list_splits(file: Mapping[str, Any]) -> list[str]:
    return [name for name in SPLIT_OF if f"ques_{name}" in file]


def _read_vocabulary(data: Mapping[str, Any], file: Path) -> Vocabulary:
    """Read the vocabulary `itow` or `ind2word`, {"1": word, …}.

    Raises UserError unless the ids are 1 … V, the words are distinct, and the last word is UNK.
    """
    key = "itow" if "itow" in data else "ind2word"
    words = data.get(key)
    if not isinstance(words, dict) or not words:
        raise UserError(
            f'{file}: the object needs `itow` or `ind2word`, {{"1": word, …}}, not {show_json(words)}; {REMEDY}'
        )
    numbers: dict[str, int] = {}
    for number in range(1, len(words) + 1):
        word = words.get(str(number))
        if not isinstance(word, str) or word.split() != [word]:
            raise UserError(f'{file}: {key}["{number}"] must be a word, not {show_json(word)}; {REMEDY}')
        if word in numbers:
            raise UserError(
                f'{file}: {key}["{number}"] is {show_json(word)}, which is word {numbers[word]} already; {REMEDY}'
            )
        numbers[word] = number
    if word != UNK_WORD:
        raise UserError(
            f'{file}: {key}["{len(words)}"] is {show_json(word)}; the last word must be {UNK_WORD}; {REMEDY}'
        )
    return Vocabulary(tuple(numbers))


def _read_split(file: h5py.File, name: str, images: list[str], vocabulary_size: int, path: Path) -> _Split:
    def read_array(key: str, axes: int) -> np.ndarray:
        return _read_integers(file, f"{key}_{name}", axes, path)

    questions, answers = read_array("ques", 3), read_array("ans", 3)
    captions, answer_list = read_array("cap", 2), read_array("opt_list", 2)
    if len(images) != len(questions):
        raise UserError(
            f"{path}: {len(questions)} dialogs in ques_{name}, but {len(images)} images in img_{name} or "
            f"unique_img_{name}; {REMEDY}"
        )
    for key, tokens in (("ques", questions), ("ans", answers), ("cap", captions), ("opt", answer_list)):
        if tokens.min() < 0 or tokens.max() > vocabulary_size:
            array_name = f"{'opt_list' if key == 'opt' else key}_{name}"
            raise UserError(
                f"{path}: {array_name} holds an id outside 0 … {vocabulary_size}, the words of the vocabulary; {REMEDY}"
            )
        lengths_names = (f"{key}_{word}_{name}" for word in ("len", "length"))
        lengths_name = next((each for each in lengths_names if each in file), None)
        if lengths_name is not None:
            _check_lengths(_read_integers(file, lengths_name, tokens.ndim - 1, path), tokens, lengths_name, path)
    options, truth = read_array("opt", 3), read_array("ans_index", 2)
    rounds, size = questions.shape[:2], answers.shape[2]
    for key, shape, expected in (
        ("ans", answers.shape[:2], rounds),
        ("opt", options.shape[:2], rounds),
        ("ans_index", truth.shape, rounds),
        ("cap", captions.shape[:1], rounds[:1]),
        ("opt_list", answer_list.shape[1:], (size,)),
    ):
        if shape != expected:
            reference = f"ans_{name}" if key == "opt_list" else f"ques_{name}"
            raise UserError(f"{path}: {key}_{name} has the size {shape}, but {reference} has {expected}; {REMEDY}")
    for option_base, truth_base in product((0, 1), repeat=2):
        if _is_consistent(options - option_base, truth - truth_base, answer_list, answers):
            return _Split(images, captions, questions, answers, options - option_base, truth - truth_base, answer_list)
    position = _find_first_wrong_round(options, truth, answer_list, answers)
    in_range = options.min() >= 0 and options.max() <= len(answer_list) and truth.min() >= 0
    if position is None or not in_range or truth.max() > options.shape[2]:
        raise UserError(
            f"{path}: an index of opt_{name} or ans_index_{name} is out of range: expected {len(answer_list)} answers "
            f"and {options.shape[2]} options, counted from 0 or from 1; {REMEDY}"
        )
    dialog, number = position
    raise UserError(
        f"{path}, dialog {dialog} of {name} (image {images[dialog]}), round {number + 1}: the human answer is not the "
        f"option that ans_index_{name} names, counted from 0 or from 1; {REMEDY}"
    )


def _read_integers(file: h5py.File, name: str, axes: int, path: Path) -> np.ndarray:
    """Return the array `name` as int64. Raises UserError unless it has `axes` axes, elements, and whole numbers."""
    values = read_dataset(file, name)
    if values.ndim != axes or not values.size:
        raise UserError(
            f"{path}: {name} has the shape {values.shape}; expected {axes} axes, none of them empty; {REMEDY}"
        )
    array = values[:]
    with np.errstate(invalid="ignore"):  # NaN and infinity differ from their integers, and are reported
        integers: np.ndarray = array.astype(np.int64)
    if (wrong := integers != array).any():
        raise UserError(f"{path}: {name} holds {array[wrong][0]:g}; expected signed 64-bit integers; {REMEDY}")
    return integers


def _check_lengths(lengths: np.ndarray, tokens: np.ndarray, name: str, path: Path) -> None:
    """Raise UserError where `lengths`, the array `name`, differ from the numbers of words in `tokens` (…, T)."""
    counts = (tokens > 0).sum(-1)
    if lengths.shape != counts.shape:
        raise UserError(f"{path}: {name} has the shape {lengths.shape}, but the texts have {counts.shape}; {REMEDY}")
    if (wrong := lengths != counts).any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        row = f"dialog {index[0]}, round {index[1] + 1}" if len(index) == 2 else f"row {index[0]}"
        limit = f"; at most {tokens.shape[-1]} were kept" if lengths[index] > tokens.shape[-1] else ""
        raise UserError(
            f"{path}, {row}: {name} states {lengths[index]} words, and {counts[index]} are there{limit}; {REMEDY}"
        )


def _is_consistent(options: np.ndarray, truth: np.ndarray, answer_list: np.ndarray, answers: np.ndarray) -> bool:
    """Return whether all indices are in range and every option `truth` is the human answer."""
    if min(options.min(), truth.min()) < 0 or options.max() >= len(answer_list) or truth.max() >= options.shape[2]:
        return False
    return not _mask_wrong_rounds(options, truth, answer_list, answers).any()


def _mask_wrong_rounds(
    options: np.ndarray, truth: np.ndarray, answer_list: np.ndarray, answers: np.ndarray
) -> np.ndarray:
    """Return a mask (N, R) of the rounds whose option `truth` is not the human answer."""
    truth_answers = answer_list[np.take_along_axis(options, truth[..., None], 2)[..., 0]]
    return (_move_padding_last(truth_answers) != _move_padding_last(answers)).any(-1)


def _find_first_wrong_round(
    options: np.ndarray, truth: np.ndarray, answer_list: np.ndarray, answers: np.ndarray
) -> tuple[int, int] | None:
    """Return dialog and round, from 0, of the first wrong round; None if all are right.

    Options and truth each count from 0 or 1; the pair of bases with the fewest wrong rounds counts.
    """
    masks = [
        _mask_wrong_rounds(
            np.clip(options - option_base, 0, len(answer_list) - 1),
            np.clip(truth - truth_base, 0, options.shape[2] - 1),
            answer_list,
            answers,
        )
        for option_base in (0, 1)
        for truth_base in (0, 1)
    ]
    positions = np.argwhere(min(masks, key=np.count_nonzero))
    return (int(positions[0, 0]), int(positions[0, 1])) if len(positions) else None


def _move_padding_last(tokens: np.ndarray) -> np.ndarray:
    """Move words before the padding, which some files have first."""
    return np.take_along_axis(tokens, np.argsort(tokens == 0, -1, kind="stable"), -1)


def _check_numbers(split: _Split, expected: ExpectedDialog, name: str, path: Path) -> ExpectedDialog:
    """Return the numbers of rounds and options that the next split must have.

    Raises UserError where `split` differs from the `expected` numbers.
    """
    found = {"rounds": split.options.shape[1], "options": split.options.shape[2]}
    for key, number in found.items():
        required = getattr(expected, key)
        if required not in (None, number):
            raise UserError(
                f"{path}: opt_{name} has {number} {key}, and {required} are expected (prepare.dialogs.{key}, or the "
                "first split's number where that is null); correct the key or the file"
            )
    return ExpectedDialog(**found)


class _TokenTexts:
    """List of distinct texts, from arrays of ids of `words`."""

    def __init__(self, words: np.ndarray) -> None:
        self._words = words
        self._numbers: dict[bytes, int] = {}
        self._texts: list[Words] = []

    def add(self, tokens: np.ndarray) -> np.ndarray:
        """Add the texts (…, T) that are new; return the indices (…) int32 of all."""
        flat = _move_padding_last(tokens).reshape(-1, tokens.shape[-1])
        indices = np.empty(len(flat), np.int32)
        for i, row in enumerate(flat):
            words = row[row > 0]
            key = words.tobytes()
            if key not in self._numbers:
                self._numbers[key] = len(self._texts)
                self._texts.append(tuple(self._words[words]))
            indices[i] = self._numbers[key]
        return indices.reshape(tokens.shape[:-1])

    @property
    def texts(self) -> tuple[Words, ...]:
        return tuple(self._texts)
