"""Batches of dialogs with all rounds of each dialog, so that an encoder can encode each history item once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from pipeline.data.batches import Batches, read_batch
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.dialog.data.dialog_questions import DialogBatch, DialogQuestions
from pipeline.dialog.data.prepared_dialogs import PreparedDialogs


class DialogBatches(Batches):
    """Training batches of dialogs about images, shuffled like batches of captions; a row of a batch is one round."""

    def __init__(self, prepared: PreparedData, dialogs: PreparedDialogs, *arguments: Any, **options: Any) -> None:
        """Prepare batches of `dialogs`, which belong to `prepared`.

        Other arguments are those of `Batches`; `batch` is the number of dialogs. `image_dropout` has no effect.
        """
        super().__init__(prepared, *arguments, **options)
        self.dialogs = dialogs

    def read(
        self, rows: np.ndarray, store_rows: np.ndarray, captions: np.ndarray, masked: np.ndarray, epoch: int, step: int
    ) -> DialogBatch:
        """Read all rounds about images `rows` (D,).

        `store_rows`, `captions` and `masked` are not used: no image is mirrored, because a mirror image swaps left and
        right.
        """
        return _read_rounds(self.prepared, self.dialogs, self.store, rows, epoch, step, self.pinned)


def iterate_rounds(
    prepared: PreparedData, dialogs: PreparedDialogs, store: FeatureStore, rows: np.ndarray, batch: int
) -> Iterator[DialogBatch]:
    """Yield all rounds of the dialogs about the images `rows`, in order, in batches of `batch` dialogs."""
    for number, start in enumerate(range(0, len(rows), batch)):
        yield _read_rounds(prepared, dialogs, store, np.asarray(rows[start : start + batch]), 0, number, pinned=False)


def _read_rounds(
    prepared: PreparedData,
    dialogs: PreparedDialogs,
    store: FeatureStore,
    rows: np.ndarray,
    epoch: int,
    step: int,
    pinned: bool,
) -> DialogBatch:
    image_batch = read_batch(prepared, store, rows, rows, prepared.first[rows], epoch, step, pinned)
    rounds_per_dialog = dialogs.rounds
    distinct, options = np.unique(dialogs.options[rows], return_inverse=True)

    def to_int64(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x.astype(np.int64))

    questions = DialogQuestions(
        questions=to_int64(dialogs.questions[rows]).flatten(0, 1),
        history=to_int64(dialogs.history(rows)),
        options=to_int64(options.reshape(len(rows) * rounds_per_dialog, -1)),
        truth=to_int64(dialogs.truth[rows]).flatten(),
        answers=to_int64(dialogs.answers[distinct]),
    )
    return DialogBatch(
        images=image_batch.images.repeat_interleave(rounds_per_dialog, 0),
        pooled=image_batch.pooled.repeat_interleave(rounds_per_dialog, 0),
        regions=image_batch.regions.repeat_interleave(rounds_per_dialog, 0),
        region_mask=image_batch.region_mask.repeat_interleave(rounds_per_dialog, 0),
        captions=to_int64(dialogs.answers[dialogs.human_answers[rows]]).flatten(0, 1),
        epoch=epoch,
        step=step,
        questions=questions,
    )
