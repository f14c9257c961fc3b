"""Channels that say what they are given: teacher forcing, and captions that begin so and go on with drawn words."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.channels.named import Named
from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.channels.words import Choose, Worded, draw
from pipeline.numbers import Numbers
from pipeline.types import Batch, Symbol


@dataclass(frozen=True)
class Forced(Worded):
    """Teacher forcing: the speaker says the batch's human captions, and what it would have said gets no hearing.

    Where only the words are wanted, not their probability (`learns=False`), the speaker is not even asked.
    """

    scheduled: ScheduledSampling | None = None
    learns: bool = True
    named = ("scheduled", "learns")
    samples = 1
    width = 1
    dropout = True

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        share = 0.0 if self.scheduled is None else self.scheduled.share(batch.epoch)
        numbers = Numbers(batch, rng)

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            index = batch.captions[rows, t]
            if share == 0:
                return Symbol(index)
            own = numbers.like(logits[:, 0], rows) < share
            return Symbol(index, fed=torch.where(own, draw(logits, numbers.like(logits[:, :1], rows)), index))

        return step


@dataclass(frozen=True)
class Annealed(Named):
    """How many words are forced: `start` at first, `by` fewer after each `every` epochs, down to none."""

    start: int
    every: int = 1
    by: int = 4
    named = ("start", "every", "by")

    def words(self, epoch: int) -> int:
        return max(0, self.start - self.by * (epoch // self.every))


def _begun(given: Tensor, lengths: Tensor, sure: int, numbers: Numbers, width: int) -> Choose:
    """The first `lengths` (N,) words of captions `given` (N, T), then drawn ones; nobody draws for `sure` steps."""

    def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
        if t < sure:
            return Symbol(given[rows, t], forced=True)
        drawn = draw(logits, numbers.like(logits[:, :1], rows, width))
        if t >= given.shape[1]:
            return Symbol(drawn)
        return Symbol(torch.where(t < lengths[rows], given[rows, t], drawn))

    return step


@dataclass(frozen=True)
class Prompted(Worded):
    """The first words of the batch's human captions, as many as `words` has in this epoch, then drawn ones (MIXER)."""

    words: Annealed
    named = ("words",)
    samples = 1
    width = 1
    learns = True
    dropout = True

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        given = min(self.words.words(batch.epoch), batch.captions.shape[1])
        lengths = torch.full_like(batch.images, given)
        return _begun(batch.captions, lengths, given, Numbers(batch, rng), self.width)


@dataclass(frozen=True)
class Continued(Worded):
    """The batch's captions begun and ended otherwise: `each` times after the first word, the second, … of `places`.

    A caption that has ended by then is not spoken again: an empty one stands there.
    """

    each: int
    places: int
    named = ("each", "places")
    learns = False
    dropout = True

    @property
    def samples(self) -> int:
        return self.each * self.places

    @property
    def width(self) -> int:
        return self.samples

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        given = batch.captions.repeat_interleave(self.width, 0)
        place = torch.arange(self.places, device=batch.device).repeat_interleave(self.each).repeat(len(batch))
        ended = given.gather(1, place.unsqueeze(1)) == 0
        return _begun(given.masked_fill(ended, 0), place + 1, 1, Numbers(batch, rng), self.width)
