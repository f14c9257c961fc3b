"""Human captions that somebody broke: what a judge of language is to tell from whole ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.channels.words import Choose, Worded
from pipeline.numbers import Numbers
from pipeline.types import Batch, Symbol

WAYS = 5
MOST = 3  # words in a row that are repeated or removed


@dataclass(frozen=True)
class Broken(Worded):
    """The batch's human captions, each broken in one way at random (Cho et al. 2022); no speaker is asked.

    Some words in a row are said again or left out, a word of another caption is inserted, two words change places, or
    all are shuffled. Where that changes nothing, the first word is said twice.
    """

    named = ()
    learns = False
    dropout = False
    samples = 1
    width = 1

    def captions(self, batch: Batch, rng: Generator) -> Tensor:
        """(B, T): as long as the batch's."""
        drawn = Numbers(batch, rng).like(torch.empty(len(batch), 3 + batch.captions.shape[1], device=batch.device))
        whole = [[word for word in row if word] for row in batch.captions.tolist()]
        broken = torch.zeros_like(batch.captions)
        for place, (words, numbers) in enumerate(zip(whole, drawn.tolist(), strict=True)):
            said = _broken(words, whole[place - 1], numbers)[: broken.shape[1]]
            said = said if said != words else (words[:1] + words)[: broken.shape[1]]
            broken[place, : len(said)] = torch.tensor(said, dtype=broken.dtype)
        return broken

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        said = self.captions(batch, rng)
        return lambda t, logits, rows: Symbol(said[rows, t])


def _broken(words: list[int], other: list[int], numbers: Sequence[float]) -> list[int]:
    """`words` broken as random `numbers` say: the way, a place, how many or where to, and an order."""
    way, place, more, *order = numbers
    at, end = int(place * len(words)), len(words)
    stop = min(end, at + 1 + int(more * MOST))
    match int(way * WAYS):
        case 0:
            return words[:stop] + words[at:]
        case 1:
            return words[:at] + words[stop:]
        case 2:
            return words[:at] + other[int(more * len(other)) :][:1] + words[at:]
        case 3:
            said, to = list(words), int(more * end)
            said[at : at + 1], said[to : to + 1] = said[to : to + 1], said[at : at + 1]
            return said
        case _:
            return [word for _, word in sorted(zip(order, words, strict=False))]
