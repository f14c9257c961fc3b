"""The budget of a training run: captions that the speaker drew, and processor time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from pipeline.runtime import ranks


class TrainingBudget:
    """Captions drawn by all ranks (`StepRollouts.captions_drawn`), and processor seconds, since the first step.

    Processor seconds are the CPU time of this process over all its threads, without validations. A resumed training
    adds the seconds of earlier processes up to its checkpoint. Other processes, such as METEOR's, do not count. With
    several ranks, the seconds of this rank count once per rank, since ranks have equal parts of each batch.
    """

    def __init__(self, device: torch.device) -> None:
        self._captions_drawn = torch.zeros((), dtype=torch.int64, device=device)
        self._previous_seconds, self._start_time = 0.0, time.process_time()

    def start(self) -> None:
        """Begin to count this process's time."""
        self._start_time = time.process_time()

    def add(self, captions_drawn: Tensor) -> None:
        """Add the captions that this rank drew in one step, without waiting for the device."""
        self._captions_drawn += ranks.all_sum(captions_drawn)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the processor time of the block."""
        start = time.process_time()
        try:
            yield
        finally:
            self._start_time += time.process_time() - start

    @property
    def captions_drawn(self) -> int:
        """Return the number of captions drawn since the first step."""
        return int(self._captions_drawn)

    @property
    def processor_seconds(self) -> float:
        """Return the processor seconds since the first step."""
        return self._previous_seconds + (time.process_time() - self._start_time) * ranks.count_ranks()

    def state(self) -> dict[str, Any]:
        """Return the budget spent so far, for a checkpoint."""
        return {"captions_drawn": self.captions_drawn, "processor_seconds": self.processor_seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the budget that `state` returned in an earlier process; call `start` afterwards."""
        self._captions_drawn.fill_(state["captions_drawn"])
        self._previous_seconds = state["processor_seconds"]
