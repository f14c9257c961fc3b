"""Random numbers for the captions of a batch, and the generators of a step that is replayed with other seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Generator, Tensor

from pipeline.errors import UserError
from pipeline.types import Batch

SeedAt = Callable[[int], int]  # training step → seed


class BatchRandom:
    """Uniform numbers in [0, 1) that depend neither on the captions still unrolled nor on the rank.

    Numbers are drawn for all captions of the whole batch; the requested rows are then selected.
    """

    def __init__(self, batch: Batch, rng: Generator | None) -> None:
        """Store the batch and the generator `rng`; None: torch's default generator."""
        self.batch, self.rng = batch, rng

    def derive_stream(self, stream: int) -> BatchRandom:
        """Return an independent stream on the batch's device, derived from the same seed."""
        assert self.rng is not None
        return BatchRandom(self.batch, _derive_generator(self.rng, stream, self.batch))

    def rand_like(self, x: Tensor, rows: Tensor | None = None, width: int = 1) -> Tensor:
        """Draw one number per element of `x` (N, …), for the captions `rows` (N,); None: all captions.

        `width` is the number of captions per image.
        """
        values = self.draw(x, self.batch.total * width, *x.shape[1:])
        start = self.batch.first * width
        return values[start : start + len(x)] if rows is None else values[rows + start]

    def keep_mask(self, x: Tensor, keep: float, rows: Tensor | None = None, width: int = 1) -> Tensor:
        """Return 1 / `keep` with the probability `keep`, else 0, for each element of `x`; see `rand_like`."""
        # on a CPU, Bernoulli draws take four times as long
        return self.rand_like(x, rows, width).lt_(keep).div_(keep)

    def draw(self, x: Tensor, *size: int) -> Tensor:
        """Draw the next numbers, of the shape `size` and the dtype of `x`."""
        device = x.device if self.rng is None else self.rng.device
        return torch.rand(*size, generator=self.rng, dtype=x.dtype, device=device)


class ReplayedGenerators:
    """The generators of one training step, in the order in which the step requests them.

    A step under `record` creates them. A step under `replay` gets the same generators again. A CUDA graph then
    draws their numbers in each replay. `seed` sets their seeds to those of the replayed step.
    """

    _current: ReplayedGenerators | None = None

    def __init__(self) -> None:
        self._entries: list[tuple[Generator, SeedAt]] = []
        self._next: int | None = None  # index of the next generator of a replayed step; None: generators are created

    @property
    def generators(self) -> list[Generator]:
        """Return the generators, in the order of their creation."""
        return [generator for generator, _ in self._entries]

    def seed(self, step: int) -> None:
        """Set each generator's seed to its seed of training step `step`."""
        for generator, seed_at in self._entries:
            generator.manual_seed(seed_at(step))

    @contextmanager
    def record(self) -> Iterator[None]:
        """Create the generators that the step in the block requests."""
        self._entries, self._next = [], None
        with self._activate():
            yield

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Pass the recorded generators to the step in the block."""
        self._next = 0
        with self._activate():
            yield

    @contextmanager
    def _activate(self) -> Iterator[None]:
        ReplayedGenerators._current = self
        try:
            yield
        finally:
            ReplayedGenerators._current = None

    def get(self, device: torch.device, seed_at: SeedAt, step: int) -> Generator:
        """Create a generator with the seed of `step`, or return the next one of a replayed step."""
        if self._next is not None:
            self._next += 1
            return self._entries[self._next - 1][0]
        generator = Generator(device).manual_seed(seed_at(step))
        self._entries.append((generator, seed_at))
        return generator

    def find_seed(self, generator: Generator) -> SeedAt:
        """Return the function from training step to seed of `generator`. Raises UserError if it is not recorded."""
        for known, seed_at in self._entries:
            if known is generator:
                return seed_at
        raise UserError(
            "a training step draws from a generator of its own, whose seeds a CUDA graph cannot change; draw from "
            "rollouts.random(name), or set SAYWHICH_CUDA_GRAPHS=0"
        )


def make_seeded_generator(device: torch.device, seed_at: SeedAt, step: int) -> Generator:
    """Return a generator on `device` with the seed of training step `step`."""
    if (generators := ReplayedGenerators._current) is not None:
        return generators.get(device, seed_at, step)
    return Generator(device).manual_seed(seed_at(step))


def _derive_generator(rng: Generator, stream: int, batch: Batch) -> Generator:
    """Return a generator on the batch's device whose seed is that of `rng` plus `stream`."""
    if (generators := ReplayedGenerators._current) is not None:
        seed_at = generators.find_seed(rng)
        return generators.get(batch.device, lambda step: (seed_at(step) + stream) % 2**63, batch.step)
    return Generator(batch.device).manual_seed((rng.initial_seed() + stream) % 2**63)
