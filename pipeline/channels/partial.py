"""Partial sampling: some captions or tokens pass as full distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor

from pipeline.channels.hard import Choose
from pipeline.channels.straight_through import StraightThrough
from pipeline.channels.streams import NamedStream
from pipeline.random import BatchRandom
from pipeline.types import Batch, TokenChoice

MixUnit = Literal["caption", "token"]
Feed = Literal["distribution", "sample"]


@dataclass(frozen=True)
class PartialSampling(NamedStream):
    """Partial sampling (PSST §5): an expected share ρ passes as full distributions, and the rest through `inner`.

    With `mix` "token", each token passes as a full distribution with probability ρ (the published code, whose `prob` is
    1 − ρ). With "caption", all tokens of a caption pass as full distributions with probability ρ (the paper's text).
    With `feed` "distribution", the speaker's next input after a full distribution is that distribution with its
    gradient (the paper's deterministic mapper). With "sample", the next input is the sampled token. A token is drawn
    for full distributions too, and a drawn EOS ends the caption. With `Gumbel` as `inner`, the relaxed sample is the
    full distribution (published code).
    """

    inner: StraightThrough = StraightThrough()
    rho: float = 0.75
    mix: MixUnit = "token"
    feed: Feed = "distribution"
    requires_grad = True
    dropout = True
    relaxes = True
    entropies = False
    rng_options = ("inner", "rho", "mix", "feed")

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
        batch_random = BatchRandom(batch, rng)

        def draw_full() -> Tensor:
            captions = torch.empty(len(batch) * self.width, device=batch.device)
            return batch_random.rand_like(captions, width=self.width) < self.rho

        full_captions = draw_full() if self.mix == "caption" else None

        def step(t: int, logits: Tensor, rows: Tensor) -> TokenChoice:
            index, noise = self.inner.sample(logits, batch_random, rows)
            full = draw_full() if full_captions is None else full_captions
            return TokenChoice(
                index,
                straight_through=self.inner.straight_through(index),
                full=full[rows],
                feeds_relaxed=self.feed == "distribution",
                noise=noise,
            )

        return step
