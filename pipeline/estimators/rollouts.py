"""Who said what in one training step: equal channels speak once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.channels.broken import Broken
from pipeline.channels.forced import Continued, Forced
from pipeline.channels.searched import Reread
from pipeline.models.decoder import Decoder
from pipeline.models.unroll import read, speak
from pipeline.numbers import Numbers
from pipeline.protocols import Channel
from pipeline.runtime import ranks
from pipeline.types import Batch, Message, caption_mask

TOGETHER = 2048  # continuations: what is seen of so many captions at the papers' size takes 300 MB


def human(batch: Batch) -> Message:
    """The batch's human captions, as nobody's sample."""
    rows = torch.arange(len(batch), device=batch.device)
    return Message(batch.captions, caption_mask(batch.captions), rows, samples=1)


class StepRollouts:
    """The captions of one batch, spoken when first asked for.

    Each channel has its own random stream, keyed by (seed, step, the channel's stated name), so what one term says does
    not depend on which other terms a method has.
    """

    def __init__(self, speaker: Decoder | None, batch: Batch, seed: int) -> None:
        self._speaker, self.batch, self.seed = speaker, batch, seed
        self._spoken: dict[Channel, Message] = {}
        self._continued: dict[tuple[Channel, int], Message] = {}
        self._made: dict[Hashable, Tensor] = {}
        self._seen: Tensor | None = None

    @property
    def speaker(self) -> Decoder:
        assert self._speaker is not None, "only a speaker can say what is not human"
        return self._speaker

    def of(self, channel: Channel) -> Message:
        if channel not in self._spoken:
            self._spoken[channel] = self._speak(channel)
        return self._spoken[channel]

    def continued(self, channel: Channel, each: int) -> Message:
        if (channel, each) not in self._continued:
            self._continued[channel, each] = self._continue(channel, each)
        return self._continued[channel, each]

    def numbers(self, what: str) -> Numbers:
        return Numbers(self.batch, self._rng(what))

    def once(self, what: Hashable, make: Callable[[], Tensor]) -> Tensor:
        if what not in self._made:
            self._made[what] = make()
        return self._made[what]

    def _speak(self, channel: Channel) -> Message:
        if isinstance(channel, Forced) and not channel.learns:
            return human(self.batch)
        if isinstance(channel, Broken):
            return human(replace(self.batch, captions=channel.captions(self.batch, self._rng(channel.stream))))
        known = self.of(channel.channel).tokens if isinstance(channel, Reread) else self.batch.captions
        # also inside a baseline's no_grad: another term may need this caption's gradient
        with self._speaking(channel):
            if channel == Forced() or isinstance(channel, Reread):  # every word is known: no need to go word by word
                return read(self.speaker, replace(self.batch, captions=known), self._rng(channel.stream), self._see())
            return speak(self.speaker, self.batch, channel, self._rng(channel.stream), self._see())

    def _continue(self, channel: Channel, each: int) -> Message:
        begun, batch, longest = self.of(channel), self.batch, self.speaker.max_words
        steps = max(2, ranks.most(begun.tokens.shape[1], batch.device))  # one place at least
        tokens = pad(begun.tokens, (0, steps - begun.tokens.shape[1]))
        ends = Continued(each, steps - 1)
        together, said = max(1, TOGETHER // ends.width), []
        with self._speaking(ends):
            for first in range(0, len(begun), together):
                images = begun.images[first : first + together]
                captions = replace(  # each as an image of its own
                    batch,
                    images=batch.images[images],
                    pooled=batch.pooled[images],
                    regions=batch.regions[images],
                    region_mask=batch.region_mask[images],
                    captions=tokens[first : first + together],
                    first=batch.first * begun.samples + first,
                    of=batch.total * begun.samples,
                )
                rng = self._rng(f"{ends.stream} of {channel.stream}")
                spoken = speak(self.speaker, captions, ends, rng, self._see()[images]).tokens
                said.append(pad(spoken, (0, longest - spoken.shape[1])))
        whole = pad(tokens, (0, longest - steps)).repeat_interleave(ends.width, 0)
        ended = (tokens[:, :-1] == 0).repeat_interleave(each, 1).view(-1, 1)
        found = torch.where(ended, whole, torch.cat(said))
        images = begun.images.repeat_interleave(ends.width)
        return Message(found, caption_mask(found), images, begun.samples * ends.width)

    @contextmanager
    def _speaking(self, channel: Channel) -> Iterator[None]:
        training = self.speaker.training
        self.speaker.train(training and channel.dropout)
        try:
            with torch.set_grad_enabled(channel.learns):
                yield
        finally:
            self.speaker.train(training)

    def _see(self) -> Tensor:
        if self._seen is None:
            with torch.enable_grad():
                self._seen = self.speaker.see(self.batch)
        return self._seen

    def _rng(self, what: str) -> torch.Generator:
        stream = zlib.crc32(what.encode())
        seed = zlib.crc32(f"{self.seed} {self.batch.step} {stream}".encode())
        return torch.Generator(self.batch.device).manual_seed((stream << 32) | seed)
