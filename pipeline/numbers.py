"""Random numbers for the captions of a batch."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from pipeline.types import Batch


class Numbers:
    """Uniform numbers in [0, 1): a caption's do not depend on which others are still here, or on other ranks.

    They are drawn for all captions of the whole batch, and those that are asked for are taken.
    """

    def __init__(self, batch: Batch, rng: Generator | None) -> None:
        """`rng`: where they come from; None: torch's own stream."""
        self.batch, self.rng = batch, rng

    def apart(self, stream: int) -> Numbers:
        """Others, on the batch's device, that depend on the same seed."""
        assert self.rng is not None
        seed = (self.rng.initial_seed() + stream) % 2**63
        return Numbers(self.batch, Generator(self.batch.device).manual_seed(seed))

    def like(self, x: Tensor, rows: Tensor | None = None, width: int = 1) -> Tensor:
        """One for each element of `x` (N, …), the `rows` (N,) of the captions here; None: all.

        `width`: captions per image.
        """
        device = x.device if self.rng is None else self.rng.device
        drawn = torch.rand(self.batch.total * width, *x.shape[1:], generator=self.rng, dtype=x.dtype, device=device)
        first = self.batch.first * width
        return drawn[first : first + len(x)] if rows is None else drawn[rows + first]
