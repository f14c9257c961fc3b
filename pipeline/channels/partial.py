"""Partial sampling: some captions or words pass as full distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from pipeline.channels.named import Named
from pipeline.channels.straight_through import StraightThrough
from pipeline.channels.words import Choose
from pipeline.numbers import Numbers
from pipeline.types import Batch, Symbol

Mix = Literal["caption", "token"]
Feed = Literal["distribution", "sample"]


@dataclass(frozen=True)
class PartialSampling(Named):
    """Partial sampling (PSST §5): a share ρ passes as full distributions, the rest through `inner`.

    `mix`: ρ is the share of captions (the paper) or of words (the published code draws a word, its `prob` is 1 − ρ).
    `feed`: a full distribution goes on from itself, gradient included (the paper's deterministic mapper), or along
    the sampled path. A word is drawn for full distributions too: it decides where the caption ends. With
    `Gumbel` inside, the relaxed sample is the full distribution (published code).
    """

    inner: StraightThrough = StraightThrough()
    rho: float = 0.25
    mix: Mix = "caption"
    feed: Feed = "distribution"
    learns = True
    dropout = True
    relaxes = True
    entropies = False
    named = ("inner", "rho", "mix", "feed")

    @property
    def samples(self) -> int:
        return self.inner.samples

    @property
    def width(self) -> int:
        return self.inner.width

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        return self.inner.relax(logits, noise, index)

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        return self.inner.distribution(logits, noise, index)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        numbers = Numbers(batch, rng)

        def full() -> Tensor:
            captions = torch.empty(len(batch) * self.width, device=batch.device)
            return numbers.like(captions, width=self.width) < self.rho

        captions = full() if self.mix == "caption" else None

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            index, noise = self.inner.sample(logits, numbers, rows)
            passing = (full() if captions is None else captions)[rows]
            feeds_full = self.feed == "distribution"
            return Symbol(index, through=self.inner.through(index), full=passing, feeds_full=feeds_full, noise=noise)

        return step
