"""Searched captions as trajectories, and decoding that says no n words twice."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.channels.words import Choose, Restricted, Worded
from pipeline.protocols import Channel
from pipeline.types import Batch, Symbol


@dataclass(frozen=True)
class Unrepeated(Restricted):
    """`channel` without the words that would say `n` words of a caption again in their order."""

    n: int
    named = ("channel", "n")

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        choose, n = self.channel.open(batch, vocabulary, rng), self.n
        said = torch.zeros(len(batch) * self.width, 0, dtype=torch.int64, device=batch.device)  # (N, t)

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            nonlocal said
            if t >= n:
                spans = said[rows].unfold(1, n, 1)  # (N, t − n + 1, n): all n words that were said
                again = (spans[..., :-1] == said[rows, t - n + 1 :].unsqueeze(1)).all(2) & (spans[..., -1] != 0)
                banned = torch.zeros_like(logits).scatter_add_(1, spans[..., -1], again.to(logits.dtype))
                logits = logits.masked_fill(banned > 0, -torch.inf)
            symbol = choose(t, logits, rows)
            if symbol.parent is not None:
                said[rows] = said[rows[symbol.parent]]
            said = torch.cat([said, said.new_zeros(len(said), 1)], 1)
            said[rows, t] = symbol.index
            return symbol

        return step


def unrepeated(channel: Channel, n: int | None) -> Channel:
    """`channel`, which says no `n` words twice; None: as often as it likes."""
    return channel if n is None else Unrepeated(channel, n)


@dataclass(frozen=True)
class Reread(Worded):
    """What `channel` says, one caption per image, read again for its log-probability, which has a gradient.

    The speaker searches without a graph and reads without dropout: what is learned is the policy that searched.
    """

    channel: Channel
    named = ("channel",)
    samples = 1
    learns = True
    dropout = False

    @property
    def width(self) -> int:
        return self.channel.width

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        return self.channel.open(batch, vocabulary, rng)
