"""Captions of one training step: equal channels share one rollout."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.channels.corrupted import CorruptedCaptions
from pipeline.channels.search import SearchTrajectory
from pipeline.channels.teacher_forcing import PrefixRollouts, TeacherForcing
from pipeline.models.decoder import Decoder
from pipeline.models.inference import optimise_for_batch
from pipeline.models.unroll import generate, teacher_force
from pipeline.protocols import Channel
from pipeline.random import BatchRandom, make_seeded_generator
from pipeline.runtime import ranks
from pipeline.types import Batch, Message, make_caption_mask

MAX_CONTINUATIONS = 2048  # continuations per call: their image encodings take 300 MB at the papers' sizes


def make_human_message(batch: Batch) -> Message:
    """Return the batch's human captions as a message without log-probabilities."""
    rows = torch.arange(len(batch), device=batch.device)
    return Message(batch.captions, make_caption_mask(batch.captions), rows, samples=1)


class StepRollouts:
    """The captions of one batch, generated at the first request.

    Each channel has its own random stream, keyed by (seed, step, `rng_key`). A term's captions therefore do not depend
    on the method's other terms.

    `captions_drawn`, int64 on the device, counts the captions that the speaker has generated so far: samples, greedy
    captions, and all beams of a search. A continuation of a prefix is one caption. Human captions do not count, not
    even corrupted ones or those of scheduled sampling. Captions that are forced to their end, such as a prefix with
    EOS, do not count.
    """

    def __init__(self, speaker: Decoder | None, batch: Batch, seed: int) -> None:
        self._speaker, self.batch, self.seed = speaker, batch, seed
        self._messages: dict[Channel, Message] = {}
        self._continuations: dict[tuple[Channel, int], Message] = {}
        self._cache: dict[Hashable, Tensor] = {}
        self._image_encodings: Tensor | None = None
        self.captions_drawn = torch.zeros((), dtype=torch.int64, device=batch.device)

    @property
    def speaker(self) -> Decoder:
        """Return the speaker; without it, only human and corrupted captions without log-probabilities are available."""
        assert self._speaker is not None, "captions other than human and corrupted ones need a speaker"
        return self._speaker

    def get_message(self, channel: Channel) -> Message:
        """Return the captions through `channel`, generated once per step."""
        if channel not in self._messages:
            self._messages[channel] = self._generate(channel)
        return self._messages[channel]

    def continue_prefixes(self, channel: Channel, samples: int) -> Message:
        """Return `samples` continuations of every prefix of the captions through `channel`, generated once per step."""
        if (channel, samples) not in self._continuations:
            self._continuations[channel, samples] = self._continue(channel, samples)
        return self._continuations[channel, samples]

    def random(self, name: str) -> BatchRandom:
        """Return the random numbers of the batch from the stream `name`."""
        return BatchRandom(self.batch, self._make_rng(name))

    def cached(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """Return the tensor of `key`, computed by `make` once per step."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def _generate(self, channel: Channel) -> Message:
        if isinstance(channel, TeacherForcing) and not channel.requires_grad:
            return make_human_message(self.batch)
        if isinstance(channel, CorruptedCaptions):
            return make_human_message(
                replace(self.batch, captions=channel.captions(self.batch, self._make_rng(channel.rng_key)))
            )
        captions = (
            self.get_message(channel.channel).tokens if isinstance(channel, SearchTrajectory) else self.batch.captions
        )
        # the channel's `requires_grad` overrides a baseline's no_grad: another term may need this caption's gradient
        with self._set_decoding_mode(channel):
            if channel == TeacherForcing() or isinstance(channel, SearchTrajectory):
                # all tokens are known, so one product computes the logits of all steps
                batch = replace(self.batch, captions=captions)
                return teacher_force(self.speaker, batch, self._make_rng(channel.rng_key), self._encode_images())
            speaker = self.speaker
            if not (channel.requires_grad or speaker.training):
                speaker = optimise_for_batch(speaker, len(self.batch) * channel.width)
            message = generate(speaker, self.batch, channel, self._make_rng(channel.rng_key), self._encode_images())
        if not isinstance(channel, TeacherForcing):
            discarded = len(self.batch) * (channel.width - channel.samples)  # beams
            self.captions_drawn += message.token_mask("drawn").any(1).sum() + discarded
        return message

    def _continue(self, channel: Channel, samples: int) -> Message:
        message, batch, max_words = self.get_message(channel), self.batch, self.speaker.max_words
        steps = max(2, ranks.all_max(message.tokens.shape[1], batch.device))  # at least one prefix
        tokens = pad(message.tokens, (0, steps - message.tokens.shape[1]))
        prefixes = PrefixRollouts(samples, steps - 1)
        captions_per_call, parts = max(1, MAX_CONTINUATIONS // prefixes.width), []
        with self._set_decoding_mode(prefixes):
            for first in range(0, len(message), captions_per_call):
                images = message.images[first : first + captions_per_call]
                part = replace(  # each caption counts as one image
                    batch.select_images(images, tokens[first : first + captions_per_call]),
                    first=batch.first * message.samples + first,
                    whole_size=batch.total * message.samples,
                )
                rng = self._make_rng(f"{prefixes.rng_key} of {channel.rng_key}")
                part_tokens = generate(self.speaker, part, prefixes, rng, self._encode_images()[images]).tokens
                parts.append(pad(part_tokens, (0, max_words - part_tokens.shape[1])))
        padded = pad(tokens, (0, max_words - steps)).repeat_interleave(prefixes.width, 0)
        prefix_ended = (tokens[:, :-1] == 0).repeat_interleave(samples, 1).view(-1, 1)
        continuations = torch.where(prefix_ended, padded, torch.cat(parts))
        self.captions_drawn += (~prefix_ended).sum()
        images = message.images.repeat_interleave(prefixes.width)
        return Message(continuations, make_caption_mask(continuations), images, message.samples * prefixes.width)

    @contextmanager
    def _set_decoding_mode(self, channel: Channel) -> Iterator[None]:
        training = self.speaker.training
        self.speaker.train(training and channel.dropout)
        try:
            with torch.set_grad_enabled(channel.requires_grad):
                yield
        finally:
            self.speaker.train(training)

    def _encode_images(self) -> Tensor:
        if self._image_encodings is None:
            with torch.enable_grad():
                self._image_encodings = self.speaker.encode_image(self.batch)
        return self._image_encodings

    def _make_rng(self, name: str) -> torch.Generator:
        stream = zlib.crc32(name.encode())

        def compute_seed(step: int) -> int:
            return (stream << 32) | zlib.crc32(f"{self.seed} {step} {stream}".encode())

        return make_seeded_generator(self.batch.device, compute_seed, self.batch.step)
