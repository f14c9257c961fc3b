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
    """The batch's human captions, each with one random corruption (Cho et al. 2022); the speaker is not run.

    A span is repeated or removed, a word of another caption is inserted, two words are swapped, or all are shuffled.
    The other caption is the previous one in the whole batch of all ranks; the first caption uses the last. Where the
    corruption changes nothing, the first word is repeated. The repetition changes neither an empty caption nor a
    caption of T equal words.
    """

    rng_name = "Broken"
    rng_options = ()
    requires_grad = False
    dropout = False
    samples = 1
    width = 1

    def captions(self, batch: Batch, rng: Generator) -> Tensor:
        """Return corrupted captions (B, T), padded or cut to the length of the batch's captions."""
        uniform = BatchRandom(batch, rng).rand_like(
            torch.empty(len(batch), 3 + batch.captions.shape[1], device=batch.device)
        )
        last = ranks.gather_with_gradient(batch.captions[-1:])[ranks.get_rank() - 1]  # the previous rank's last caption
        previous, *captions = ([word for word in row if word] for row in [last.tolist(), *batch.captions.tolist()])
        corrupted = torch.zeros_like(batch.captions)
        for n, (words, draws) in enumerate(zip(captions, uniform.tolist(), strict=True)):
            tokens = _corrupt(words, previous, draws)[: corrupted.shape[1]]
            previous = words
            tokens = tokens if tokens != words else (words[:1] + words)[: corrupted.shape[1]]
            corrupted[n, : len(tokens)] = torch.tensor(tokens, dtype=corrupted.dtype)
        return corrupted

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        tokens = self.captions(batch, rng)
        return lambda t, logits, rows: TokenChoice(tokens[rows, t])


def _corrupt(words: list[int], other_words: list[int], draws: Sequence[float]) -> list[int]:
    """Corrupt `words` by uniform `draws`: the kind of corruption, a position, a length or target, an order."""
    kind, position, extent, *order = draws
    start, end = int(position * len(words)), len(words)
    stop = min(end, start + 1 + int(extent * MAX_SPAN))
    match int(kind * KINDS):
        case 0:
            return words[:stop] + words[start:]
        case 1:
            return words[:start] + words[stop:]
        case 2:
            return words[:start] + other_words[int(extent * len(other_words)) :][:1] + words[start:]
        case 3:
            tokens, other_start = list(words), int(extent * end)
            first, second = slice(start, start + 1), slice(other_start, other_start + 1)
            tokens[first], tokens[second] = words[second], words[first]
            return tokens
        case _:
            return [word for _, word in sorted(zip(order, words, strict=False))]
