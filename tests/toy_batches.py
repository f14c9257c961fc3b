"""Training batches of the toy data."""

from collections.abc import Iterator
from dataclasses import replace

from pipeline.types import Batch


class ToyBatches:
    """Batches of the toy data, `steps` per epoch; the human captions of an image alternate over epochs and steps.

    Step `interrupt_at`, counted over epochs, raises KeyboardInterrupt, like an interrupted run.
    """

    def __init__(self, toy, interrupt_at: int | None = None, steps: int = 3) -> None:
        self.toy, self.interrupt_at, self.steps = toy, interrupt_at, steps

    def __len__(self) -> int:
        return self.steps

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for i in range(start, self.steps):
            step = self.steps * epoch + i
            if step == self.interrupt_at:
                raise KeyboardInterrupt
            yield replace(self.toy.batch(step, caption=(epoch + i) % 3), epoch=epoch)
