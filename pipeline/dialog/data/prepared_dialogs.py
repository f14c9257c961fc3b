"""Dialogs in the prepared form: words are tokens, and answers with equal tokens are merged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.data.prepared import pad_lists, read_columns, view_column
from pipeline.dialog.data.dialog_corpus import Dialogs
from pipeline.errors import UserError
from pipeline.runtime.files import atomic_path
from pipeline.vocabulary import Vocabulary

ROUNDS, ANSWERS = "rounds.parquet", "answers.parquet"


@dataclass(frozen=True)
class DialogLengths:
    """Maximum numbers of words of texts; longer texts are truncated."""

    caption: int
    question: int
    answer: int


def write_prepared_dialogs(dialogs: Dialogs, vocabulary: Vocabulary, lengths: DialogLengths, out: Path) -> None:
    """Write rounds.parquet, one row per round, and answers.parquet into the folder `out`.

    Answers with equal tokens, after truncation and with UNK for unknown words, are merged, since no model can
    distinguish them. Otherwise, an answer that equals the human answer would be a negative in training.
    """
    images, rounds = dialogs.question.shape
    answers: dict[tuple[int, ...], int] = {}
    texts: list[str] = []
    merged_index = np.empty(len(dialogs.answers), np.int32)
    for i, words in enumerate(dialogs.answers):
        tokens = tuple(vocabulary.encode(words)[: lengths.answer])
        if tokens not in answers:
            texts.append(" ".join(words))
        merged_index[i] = answers.setdefault(tokens, len(answers))
    questions = [vocabulary.encode(words)[: lengths.question] for words in dialogs.questions]
    captions = [vocabulary.encode(words)[: lengths.caption] for words in dialogs.captions]
    columns: dict[str, Any] = {
        "image": np.repeat(np.arange(images), rounds),
        "caption": [captions[i] for i in range(images) for _ in range(rounds)],
        "question": [questions[i] for i in dialogs.question.ravel()],
        "options": pa.FixedSizeListArray.from_arrays(merged_index[dialogs.options].ravel(), dialogs.options.shape[2]),
        "truth": dialogs.truth.ravel().astype(np.int32),
    }
    if dialogs.relevance is not None:
        flat = pa.array(dialogs.relevance.astype(np.float32).ravel())
        columns["relevance"] = pa.FixedSizeListArray.from_arrays(flat, dialogs.options.shape[2])
    for name, values in (("kind", dialogs.kinds), ("refers", dialogs.refers)):
        if values is not None:
            columns[name] = values.ravel().tolist()
    if dialogs.answer_relevance is not None:
        columns["right"] = [json.dumps(dialogs.answer_relevance[i, r]) for i in range(images) for r in range(rounds)]
    answer_table = pa.table({"tokens": pa.array(list(answers), pa.list_(pa.int32())), "text": texts})
    for name, table in ((ANSWERS, answer_table), (ROUNDS, pa.table(columns))):
        with atomic_path(out / name) as path:
            pq.write_table(table, path, compression="zstd")


@dataclass(frozen=True, eq=False)
class PreparedDialogs:
    """M dialogs of R rounds as tokens, padded with 0 (EOS), one per prepared image, with U distinct answers."""

    folder: Path
    captions: np.ndarray  # (M, C) int32
    questions: np.ndarray  # (M, R, Q) int32
    options: np.ndarray  # (M, R, O) int32: rows of `answers`
    truth: np.ndarray  # (M, R) int32: index of the human answer among the options
    answers: np.ndarray  # (U, A+1) int32: each ends in EOS
    relevance: np.ndarray | None  # (M, R, O) float32, NaN where not annotated

    @classmethod
    def load(cls, folder: Path) -> PreparedDialogs:
        """Read the files of `write_prepared_dialogs`. Raises UserError where the prepared data have no dialogs."""
        path = folder / ROUNDS
        try:
            names = pq.read_schema(path).names
            columns = ["image", "caption", "question", "options", "truth", "relevance"]
            rounds = read_columns(path, [name for name in columns if name in names]).combine_chunks()
            answers = read_columns(folder / ANSWERS, ["tokens"])["tokens"].combine_chunks()
        except FileNotFoundError:
            raise UserError(
                f"{path}: the data have no dialogs; set prepare.format: visdial and run the prepare stage"
            ) from None
        shape = (int(view_column(rounds["image"])[-1]) + 1, -1)
        options = rounds["options"].chunk(0)
        options_shape = (*shape, options.type.list_size)
        lists = {name: pad_lists(rounds[name].chunk(0)) for name in ("caption", "question")}
        relevance = (
            view_column(rounds["relevance"].chunk(0).values).reshape(options_shape) if "relevance" in names else None
        )
        return cls(
            folder,
            captions=lists["caption"].reshape(*shape, lists["caption"].shape[1])[:, 0],
            questions=lists["question"].reshape(*shape, lists["question"].shape[1]),
            options=view_column(options.values).reshape(options_shape),
            truth=view_column(rounds["truth"]).reshape(shape),
            answers=np.pad(pad_lists(answers), ((0, 0), (0, 1))),
            relevance=relevance,
        )

    @property
    def rounds(self) -> int:
        """Return the number of questions in a dialog."""
        return self.questions.shape[1]

    @cached_property
    def human_answers(self) -> np.ndarray:
        """Return (M, R) int32: the human answers, as rows of `answers`."""
        return np.take_along_axis(self.options, self.truth[..., None].astype(np.int64), 2)[..., 0]

    def history(self, images: np.ndarray) -> np.ndarray:
        """Return the history items, (D, R, L) int32: the caption, then each question with its answer.

        Item r is new in round r, so the history of round r consists of the items 0 … r.
        """
        # the last question and answer are in no round's history
        pairs = np.concatenate([self.questions[images], self.answers[self.human_answers[images]]], 2)[:, :-1]
        order = np.argsort(pairs == 0, 2, kind="stable")  # words first, then padding
        pairs = np.take_along_axis(pairs, order, 2)
        width = max(pairs.shape[2], self.captions.shape[1])
        items = np.zeros((len(images), self.rounds, width), np.int32)
        items[:, 0, : self.captions.shape[1]] = self.captions[images]
        items[:, 1:, : pairs.shape[2]] = pairs
        return items

    @cached_property
    def texts(self) -> list[str]:
        """Return the answers as annotated, (U,); merged answers have the first text."""
        return read_columns(self.folder / ANSWERS, ["text"])["text"].to_pylist()

    def column(self, name: str) -> np.ndarray | None:
        """Return the column `name` (kind, refers or right) as text (M, R); None if the annotations lack it."""
        if name not in pq.read_schema(self.folder / ROUNDS).names:
            return None
        return np.array(read_columns(self.folder / ROUNDS, [name])[name].to_pylist()).reshape(self.truth.shape)

    def answer_relevance(self) -> list[dict[str, float]] | None:
        """Return a mapping from answer texts to relevance for each of the M·R rounds; None if it is not annotated.

        An answer that a mapping lacks has relevance 0.
        """
        texts = self.column("right")
        return None if texts is None else [json.loads(text) for text in texts.ravel()]
