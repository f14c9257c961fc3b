"""Channels that emit given tokens: teacher forcing, and captions with a forced prefix and drawn tokens after it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.channels.hard import Choose, HardChannel, sample_tokens
from pipeline.channels.scheduled_sampling import ScheduledSampling
from pipeline.channels.streams import NamedStream
from pipeline.random import BatchRandom
from pipeline.types import Batch, TokenChoice


@dataclass(frozen=True)
class TeacherForcing(HardChannel):
    """Channel that emits the batch's captions, by default the human ones, whatever the speaker's logits.

    With `scheduled`, a share of the next inputs are tokens that the speaker samples. With `requires_grad=False`, only
    the tokens are needed, and `StepRollouts` does not run the speaker.
    """

    scheduled: ScheduledSampling | None = None
    requires_grad: bool = True
    rng_name = "Forced"
    rng_options = ("scheduled", ("learns", "requires_grad"))
    samples = 1
    width = 1
    dropout = True

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        share = 0.0 if self.scheduled is None else self.scheduled.share(batch.epoch)
        batch_random = BatchRandom(batch, rng)

        def step(t: int, logits: Tensor, rows: Tensor) -> TokenChoice:
            index = batch.captions[rows, t]
            if share == 0:
                return TokenChoice(index)
            sampled = batch_random.rand_like(logits[:, 0], rows) < share
            return TokenChoice(
                index,
                next_input=torch.where(
                    sampled, sample_tokens(logits, batch_random.rand_like(logits[:, :1], rows)), index
                ),
            )

        return step


@dataclass(frozen=True)
class PrefixSchedule(NamedStream):
    """Number of forced tokens by epoch: `start` at first, `decrement` fewer after each `every` epochs, not below 0."""

    start: int
    every: int = 1
    decrement: int = 4
    rng_name = "Annealed"
    rng_options = ("start", "every", ("by", "decrement"))

    def length(self, epoch: int) -> int:
        """Return the number of forced tokens in `epoch`."""
        return max(0, self.start - self.decrement * (epoch // self.every))


def _make_prefix_step(
    tokens: Tensor, lengths: Tensor, forced_steps: int, batch_random: BatchRandom, width: int
) -> Choose:
    """Return a function that forces the first `lengths` (N,) tokens of `tokens` (N, T), then samples.

    No length is below `forced_steps`: in the first `forced_steps` steps, the choice is marked as forced.
    """

    def step(t: int, logits: Tensor, rows: Tensor) -> TokenChoice:
        if t < forced_steps:
            return TokenChoice(tokens[rows, t], forced=True)
        sampled = sample_tokens(logits, batch_random.rand_like(logits[:, :1], rows, width))
        if t >= tokens.shape[1]:
            return TokenChoice(sampled)
        return TokenChoice(torch.where(t < lengths[rows], tokens[rows, t], sampled))

    return step


@dataclass(frozen=True)
class ForcedPrefix(HardChannel):
    """Channel that emits the first tokens of the batch's human captions, then drawn tokens (MIXER).

    `words` schedules the number of forced tokens over the epochs.
    """

    words: PrefixSchedule
    rng_name = "Prompted"
    rng_options = ("words",)
    samples = 1
    width = 1
    requires_grad = True
    dropout = True

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        length = min(self.words.length(batch.epoch), batch.captions.shape[1])
        lengths = torch.full_like(batch.images, length)
        return _make_prefix_step(batch.captions, lengths, length, BatchRandom(batch, rng), self.width)


@dataclass(frozen=True)
class PrefixRollouts(HardChannel):
    """Continuations of the batch's captions: `each` for every prefix of 1 … `prefixes` tokens.

    A prefix that contains the caption's EOS is not continued: its continuations are empty captions.
    """

    each: int
    prefixes: int
    rng_name = "Continued"
    rng_options = ("each", ("places", "prefixes"))
    requires_grad = False
    dropout = True

    @property
    def samples(self) -> int:
        return self.each * self.prefixes

    @property
    def width(self) -> int:
        return self.samples

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        captions = batch.captions.repeat_interleave(self.width, 0)
        last = torch.arange(self.prefixes, device=batch.device).repeat_interleave(self.each).repeat(len(batch))
        ended = captions.gather(1, last.unsqueeze(1)) == 0
        return _make_prefix_step(captions.masked_fill(ended, 0), last + 1, 1, BatchRandom(batch, rng), self.width)
