"""VisDial (Das et al. 2017) as published: visdial_0.9_*.json, visdial_1.0_*.json and dense annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pipeline.data.corpus import SPLITS, AnnotatedCaption, Corpus, CorpusImage, tokenise
from pipeline.dialog.data.dialog_corpus import Dialogs, DistinctTexts, Words
from pipeline.errors import UserError
from pipeline.readers.annotation_file import FileRow, JsonFile, UniqueNames, show_json
from pipeline.readers.checks import make_caption
from pipeline.runtime.untrusted import require_plain_file

HELD_OUT = 1000  # last dialogs of train, which form the validation split if there is no val file (v0.9)


@dataclass(frozen=True)
class ExpectedDialog:
    """Required numbers of rounds per dialog and options per round; None: the number in the first dialog."""

    rounds: int | None = 10
    options: int | None = 100


def read_visdial(
    files: Mapping[str, Path],
    relevance: Mapping[str, Path],
    expected: ExpectedDialog,
    caption_corpus: Corpus | None = None,
) -> Corpus:
    """Read the dialogs of each split from `files`, and the relevance of their options from the files `relevance`.

    Without a `val` file, the validation split is the last HELD_OUT dialogs of train. Images have the captions and files
    of `caption_corpus`, matched by id; without it, they have only the dialog's caption. Relevance has the format of
    visdial_1.0_val_dense_annotations.json, for all rounds or only some. Raises UserError for a missing or
    malformed file, with the position of the fault. Raises UserError, too, for relevance of a split without dialogs, too
    few dialogs to hold out, and an image that `caption_corpus` lacks.
    """
    reader = _Reader(expected)
    if unmatched := next((split for split in relevance if split not in files), None):
        raise UserError(
            f"{relevance[unmatched]}: {unmatched}_relevance needs a file `{unmatched}` with its dialogs; name both"
        )
    for split in SPLITS:
        if split in files:
            reader.read(files[split], split, relevance.get(split))
    splits = reader.splits
    if "val" not in files:
        train = [i for i, split in enumerate(splits) if split == "train"]
        if len(train) <= HELD_OUT:
            raise UserError(
                f"{files['train']}: {len(train)} dialogs are too few to hold out {HELD_OUT}; name a val file"
            )
        for i in train[-HELD_OUT:]:
            splits[i] = "val"
    dialogs = reader.build_dialogs()
    captions = [AnnotatedCaption(" ".join(words), words) for words in dialogs.captions]
    rows = zip(reader.images, splits, captions, strict=True)
    images = tuple(CorpusImage(image, "", split, (caption,)) for image, split, caption in rows)
    corpus = Corpus("visdial", images, (*files.values(), *relevance.values()), attached=dialogs)
    return corpus if caption_corpus is None else replace_captions(corpus, caption_corpus)


def replace_captions(corpus: Corpus, caption_corpus: Corpus) -> Corpus:
    """Return `corpus` with the captions and files that `caption_corpus` has for its images, by id.

    Raises UserError where `caption_corpus` lacks an image.
    """
    images_by_id = {image.id: image for image in caption_corpus.images}
    if missing := next((image.id for image in corpus.images if image.id not in images_by_id), None):
        raise UserError(
            f"{caption_corpus.sources[0]}: image {missing} of {corpus.sources[0]} is missing; "
            "name a file with the captions of all images"
        )
    images = tuple(replace(images_by_id[image.id], split=image.split) for image in corpus.images)
    return replace(corpus, images=images, sources=(*corpus.sources, *caption_corpus.sources))


class _Reader:
    """Builder of `Dialogs` that accumulates the dialogs of all splits."""

    def __init__(self, expected: ExpectedDialog) -> None:
        self.expected = expected
        self.images: list[str] = []
        self.splits: list[str] = []
        self.captions: list[Words] = []
        self.questions, self.answers = DistinctTexts[Words](), DistinctTexts[Words]()
        # questions, options and index of the human answer of each dialog
        self.rounds: list[tuple[list[int], list[np.ndarray], list[int]]] = []
        self.annotations: list[list[tuple[str, str]]] = []  # kind and refers of each round
        self.relevance: dict[tuple[int, int], list[float]] = {}
        self.answer_relevance: dict[tuple[int, int], dict[str, float]] = {}
        self._images = UniqueNames("image")

    def read(self, file: Path, split: str, relevance: Path | None) -> None:
        data = JsonFile(file).data.get("data")
        if not isinstance(data, dict) or not {"questions", "answers", "dialogs"} <= data.keys():
            raise UserError(
                f"{file}, line 1: no `data` with `questions`, `answers` and `dialogs`; name a file of VisDial's form"
            )
        for name, kind in (("questions", str), ("answers", str), ("dialogs", dict)):
            if not isinstance(data[name], list) or not all(isinstance(entry, kind) for entry in data[name]):
                raise UserError(
                    f"{file}: `{name}` of `data` must be a list of {'texts' if kind is str else 'dialogs'}; correct it"
                )
        if not data["dialogs"]:
            raise UserError(f"{file}: `dialogs` of `data` is empty; at least one dialog is expected; add dialogs")
        questions, answers = ([tokenise(text) for text in data[name]] for name in ("questions", "answers"))
        question_index = np.array([self.questions.add(words) for words in questions], np.int32)
        answer_index = np.array([self.answers.add(words) for words in answers], np.int32)
        first = len(self.images)
        for number, dialog in enumerate(data["dialogs"]):
            position = _DialogPosition(file, number, "dialog")
            try:
                self._add_dialog(dialog, position, question_index, answer_index)
            except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError) as error:
                if isinstance(error, UserError):
                    raise
                position.fail(f"not a dialog of VisDial's form ({type(error).__name__}: {str(error)[:80]})")
            self.splits.append(split)
        if relevance is not None:
            self._read_relevance(relevance, {image: first + i for i, image in enumerate(self.images[first:])})

    def _add_dialog(
        self, dialog: Any, position: _DialogPosition, question_index: np.ndarray, answer_index: np.ndarray
    ) -> None:
        image, rounds = str(dialog["image_id"]), dialog["dialog"]
        position = replace(position, image=image)
        self._images.add(image, position)
        self._check_number("rounds", len(rounds), position)
        questions, options_of_rounds, truth, annotations = [], [], [], []
        for number, entry in enumerate(rounds, start=1):
            round_position = replace(position, round=number)
            numbers = (*entry["answer_options"], entry["gt_index"], entry["answer"], entry["question"])
            if wrong := [number for number in numbers if type(number) is not int]:
                names = "`answer_options`, `gt_index`, `answer` and `question`"
                round_position.fail(f"{names} must be whole numbers, not {show_json(wrong[0])}")
            options, truth_index = np.array(entry["answer_options"], np.int64), entry["gt_index"]
            self._check_number("options", len(options), round_position)
            if not 0 <= truth_index < len(options):
                round_position.fail(f"`gt_index` {truth_index} is none of the {len(options)} options")
            if options[truth_index] != entry["answer"]:
                problem = f"option {truth_index} is answer {options[truth_index]}"
                round_position.fail(f"{problem}, but the human answer is {entry['answer']}")
            unknown = options[(options < 0) | (options >= len(answer_index))]
            if len(unknown):
                round_position.fail(f"option {unknown[0]} is none of the {len(answer_index)} answers")
            if not 0 <= entry["question"] < len(question_index):
                round_position.fail(f"question {entry['question']} is none of the {len(question_index)} questions")
            questions.append(int(question_index[entry["question"]]))
            options_of_rounds.append(answer_index[options])
            truth.append(truth_index)
            kind, refers = entry.get("kind", ""), entry.get("refers", "")
            if not isinstance(kind, str) or not isinstance(refers, str):
                round_position.fail(f"`kind` and `refers` must be texts, not {show_json(kind)} and {show_json(refers)}")
            annotations.append((kind, refers))
        self.images.append(image)
        self.captions.append(make_caption(dialog["caption"], None, position).words)
        self.rounds.append((questions, options_of_rounds, truth))
        self.annotations.append(annotations)

    def _check_number(self, key: str, number: int, position: _DialogPosition) -> None:
        """Raise UserError for a wrong number of rounds or options; the first dialog sets an unspecified number."""
        expected = getattr(self.expected, key)
        if not number:
            position.fail(f"there are no {key}; at least one is expected")
        if expected is None:
            self.expected = replace(self.expected, **{key: number})
        elif number != expected:
            source = f"prepare.dialogs.{key}, or the first dialog's number where that is null"
            position.fail(f"{number} {key}, and {expected} are expected ({source})")

    def _read_relevance(self, file: Path, rows: Mapping[str, int]) -> None:
        try:
            entries = json.loads(require_plain_file(file).read_text(encoding="utf-8"))
            rounds = UniqueNames("round")
            for number, entry in enumerate(entries):
                position = FileRow(file, number + 1, "entry")
                row, round_index = rows.get(str(entry["image_id"])), entry["round_id"] - 1
                scores = entry.get("gt_relevance", entry.get("relevance"))
                if row is None or not 0 <= round_index < len(self.rounds[row][2]):
                    missing = f"no round {show_json(entry['round_id'])} of image {show_json(entry['image_id'])}"
                    position.fail(f"{missing} is in this split; correct the entry")
                if len(scores) != len(self.rounds[row][1][round_index]):
                    option_count = len(self.rounds[row][1][round_index])
                    position.fail(f"{len(scores)} numbers of relevance for {option_count} options; give one per option")
                rounds.add(f"{entry['round_id']} of image {entry['image_id']}", position)
                self.relevance[row, round_index] = [_check_relevance(score, position) for score in scores]
                if "answers" in entry:
                    answers = entry["answers"].items()
                    self.answer_relevance[row, round_index] = {
                        text: _check_relevance(score, position) for text, score in answers
                    }
        except FileNotFoundError:
            raise UserError(
                f"{file}: the file of relevance annotations is missing; correct its path, or leave it out"
            ) from None
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"{file}: not VisDial's dense annotations ({type(error).__name__}: {error}); correct it"
            ) from None

    def build_dialogs(self) -> Dialogs:
        """Return all dialogs that have been read."""
        options = np.array([options for _, options, _ in self.rounds], np.int32)
        relevance = None
        if self.relevance:
            relevance = np.full(options.shape, np.nan, np.float32)
            for index, scores in self.relevance.items():
                relevance[index] = scores
        annotations = np.array(self.annotations)
        has_kinds = bool(annotations.size) and bool((annotations != "").any())
        rounds = product(range(len(options)), range(options.shape[1]))
        answer_relevance = {index: self.answer_relevance.get(index, {}) for index in rounds}
        return Dialogs(
            captions=tuple(self.captions),
            questions=self.questions.texts,
            answers=self.answers.texts,
            question=np.array([questions for questions, _, _ in self.rounds], np.int32),
            options=options,
            truth=np.array([truth for _, _, truth in self.rounds], np.int32),
            relevance=relevance,
            kinds=annotations[..., 0] if has_kinds else None,
            refers=annotations[..., 1] if has_kinds else None,
            answer_relevance=answer_relevance if self.answer_relevance else None,
        )


def _check_relevance(score: Any, position: FileRow) -> float:
    """Return the relevance of an answer; raises UserError unless it is a number from 0 to 1."""
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        position.fail(f"the relevance {show_json(score)} is no number from 0 to 1; correct it")
    return float(score)


@dataclass(frozen=True, slots=True)
class _DialogPosition(FileRow):
    """Position of a dialog in a file's list, from 0, and of a round in the dialog, from 1."""

    image: str = ""
    round: int = 0

    def __str__(self) -> str:
        image = f" (image {self.image})" if self.image else ""
        return f"dialog {self.number}{image}" + (f", round {self.round}" if self.round else "")

    def fail(self, problem: str) -> NoReturn:
        raise UserError(f"{self.file}, {self}: {problem}; correct the file")
