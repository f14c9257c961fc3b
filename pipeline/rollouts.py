"""Who said what in one training step: equal channels speak once."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

from pipeline.channels import Forced
from pipeline.models.speaker import Speaker
from pipeline.protocols import Channel
from pipeline.types import Batch, Message, caption_mask


def human(batch: Batch) -> Message:
    """The batch's human captions, as nobody's sample."""
    rows = torch.arange(len(batch), device=batch.device)
    return Message(batch.captions, caption_mask(batch.captions), rows, samples=1)


class StepRollouts:
    """The captions of one batch, spoken when first asked for.

    Each channel has its own random stream, keyed by (seed, step, channel), so what one term says does not depend on
    which other terms a method has.
    """

    def __init__(self, speaker: Speaker, batch: Batch, seed: int) -> None:
        self.speaker, self.batch, self.seed = speaker, batch, seed
        self._spoken: dict[Channel, Message] = {}
        self._seen: Tensor | None = None

    def of(self, channel: Channel) -> Message:
        if channel not in self._spoken:
            self._spoken[channel] = self._speak(channel)
        return self._spoken[channel]

    def _speak(self, channel: Channel) -> Message:
        if isinstance(channel, Forced) and not channel.learns:
            return human(self.batch)
        training = self.speaker.training
        self.speaker.train(training and channel.dropout)
        try:
            # also inside a baseline's no_grad: another term may need this caption's gradient
            with torch.set_grad_enabled(channel.learns):
                if channel == Forced():  # every word is known: no need to go word by word
                    return self.speaker.read(self.batch, self._rng(channel), self._see())
                return self.speaker.speak(self.batch, channel, self._rng(channel), self._see())
        finally:
            self.speaker.train(training)

    def _see(self) -> Tensor:
        if self._seen is None:
            with torch.enable_grad():
                self._seen = self.speaker.see(self.batch)
        return self._seen

    def _rng(self, channel: Channel) -> torch.Generator:
        stream = zlib.crc32(repr(channel).encode())
        seed = zlib.crc32(f"{self.seed} {self.batch.step} {stream}".encode())
        return torch.Generator(self.batch.device).manual_seed((stream << 32) | seed)
