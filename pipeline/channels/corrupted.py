"""Corrupted human captions, the negatives of a grammar discriminator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.channels.hard import Choose, HardChannel
from pipeline.random import BatchRandom
from pipeline.runtime import ranks
from pipeline.types import Batch, TokenChoice

KINDS = 5
MAX_SPAN = 3  # maximum length of a repeated or removed span, in words


@dataclass(frozen=True)
class CorruptedCaptions(HardChannel):
    """The batch's human captions, each with one random corruption (Cho et al. 2022); no speaker takes part.

    A span is repeated or removed, a word of another caption is inserted, two words are swapped, or all are shuffled.
    The other caption is the one before, in the whole batch of all ranks; before the first is the last. Where the
    corruption changes nothing, the first word is repeated. This changes neither an empty caption nor one that fills the
    length with a single word.
    """

    rng_name = "Broken"
    rng_options = ()
    requires_grad = False
    dropout = False
    samples = 1
    width = 1

    def captions(self, batch: Batch, rng: Generator) -> Tensor:
        """Return corrupted captions (B, T), padded or cut to the length of the batch's captions."""
        drawn = BatchRandom(batch, rng).rand_like(
            torch.empty(len(batch), 3 + batch.captions.shape[1], device=batch.device)
        )
        before = ranks.gather_with_gradient(batch.captions[-1:])[ranks.rank() - 1]  # the last of the rank before
        other, *whole = ([word for word in row if word] for row in [before.tolist(), *batch.captions.tolist()])
        corrupted = torch.zeros_like(batch.captions)
        for place, (words, numbers) in enumerate(zip(whole, drawn.tolist(), strict=True)):
            tokens = _corrupt(words, other, numbers)[: corrupted.shape[1]]
            other = words
            tokens = tokens if tokens != words else (words[:1] + words)[: corrupted.shape[1]]
            corrupted[place, : len(tokens)] = torch.tensor(tokens, dtype=corrupted.dtype)
        return corrupted

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        tokens = self.captions(batch, rng)
        return lambda t, logits, rows: TokenChoice(tokens[rows, t])


def _corrupt(words: list[int], other: list[int], numbers: Sequence[float]) -> list[int]:
    """Corrupt `words` by uniform `numbers`: the kind of corruption, a position, a length or target, an order."""
    kind, position, extent, *order = numbers
    at, end = int(position * len(words)), len(words)
    stop = min(end, at + 1 + int(extent * MAX_SPAN))
    match int(kind * KINDS):
        case 0:
            return words[:stop] + words[at:]
        case 1:
            return words[:at] + words[stop:]
        case 2:
            return words[:at] + other[int(extent * len(other)) :][:1] + words[at:]
        case 3:
            swapped, to = list(words), int(extent * end)
            swapped[at : at + 1], swapped[to : to + 1] = swapped[to : to + 1], swapped[at : at + 1]
            return swapped
        case _:
            return [word for _, word in sorted(zip(order, words, strict=False))]
