"""Questions of dialogs, and batches of questions with their images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from pipeline.types import Batch, move_tensors


@dataclass(frozen=True)
class DialogQuestions:
    """Questions of D dialogs of R rounds each: N = D·R questions, dialog by dialog.

    Token sequences are padded with EOS (0).
    """

    questions: Tensor  # (N, Q) int64
    history: Tensor  # (D, R, L) int64: items 0 … r of a dialog are the history of round r
    options: Tensor  # (N, O) int64: candidates, rows of `answers`
    truth: Tensor  # (N,) int64: index of the human answer among the options
    answers: Tensor  # (U, T) int64: distinct answers


@dataclass(frozen=True, kw_only=True)
class DialogBatch(Batch):
    """Batch of N questions with their images; its captions are the human answers."""

    questions: DialogQuestions

    def to(self, device: torch.device | str) -> Self:
        return replace(super().to(device), questions=replace(self.questions, **move_tensors(self.questions, device)))


def get_questions(batch: Batch) -> DialogQuestions:
    """Return the questions of a batch, which must be a `DialogBatch`."""
    assert isinstance(batch, DialogBatch), f"expected a DialogBatch, found a {type(batch).__name__}"
    return batch.questions
