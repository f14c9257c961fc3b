"""Random numbers for the captions of a batch."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from pipeline.types import Batch


class BatchRandom:
    """Uniform numbers in [0, 1) that depend neither on the captions still unrolled nor on the rank.

    Numbers are drawn for all captions of the whole batch; the requested rows are then selected.
    """

    def __init__(self, batch: Batch, rng: Generator | None) -> None:
        """Store the batch and the generator `rng`; None: torch's default generator."""
        self.batch, self.rng = batch, rng

    def apart(self, stream: int) -> BatchRandom:
        """Return an independent stream on the batch's device, derived from the same seed."""
        assert self.rng is not None
        seed = (self.rng.initial_seed() + stream) % 2**63
        return BatchRandom(self.batch, Generator(self.batch.device).manual_seed(seed))

    def like(self, x: Tensor, rows: Tensor | None = None, width: int = 1) -> Tensor:
        """Draw one number per element of `x` (N, …), for the captions `rows` (N,); None: all captions.

        `width` is the number of captions per image.
        """
        drawn = self.draw(x, self.batch.total * width, *x.shape[1:])
        first = self.batch.first * width
        return drawn[first : first + len(x)] if rows is None else drawn[rows + first]

    def draw(self, x: Tensor, *size: int) -> Tensor:
        """Draw the next numbers (`size`) of the type of `x`."""
        device = x.device if self.rng is None else self.rng.device
        return torch.rand(*size, generator=self.rng, dtype=x.dtype, device=device)
