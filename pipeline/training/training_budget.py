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
    adds those of earlier processes up to its checkpoint. Other processes, such as METEOR's, do not count. With several
    ranks the seconds are those of rank 0 times the number of ranks, since ranks have equal parts of each batch.
    """

    def __init__(self, device: torch.device) -> None:
        self._drawn = torch.zeros((), dtype=torch.int64, device=device)
        self._earlier, self._began = 0.0, time.process_time()

    def start(self) -> None:
        """Begin to count this process's time."""
        self._began = time.process_time()

    def add(self, captions_drawn: Tensor) -> None:
        """Add the captions that this rank drew in one step, without waiting for the device."""
        self._drawn += ranks.all_sum(captions_drawn)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the processor time of the block."""
        start = time.process_time()
        try:
            yield
        finally:
            self._began += time.process_time() - start

    @property
    def captions_drawn(self) -> int:
        """Return the number of captions drawn since the first step."""
        return int(self._drawn)

    @property
    def processor_seconds(self) -> float:
        """Return the processor seconds since the first step."""
        return self._earlier + (time.process_time() - self._began) * ranks.count_ranks()

    def state(self) -> dict[str, Any]:
        """Return the budget spent so far, for a checkpoint."""
        return {"captions_drawn": self.captions_drawn, "processor_seconds": self.processor_seconds}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the budget that `state` returned, in this process or an earlier one."""
        self._drawn.fill_(state["captions_drawn"])
        self._earlier = state["processor_seconds"]
