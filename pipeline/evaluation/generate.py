"""Captions of many images, without UNK: a reader has no use for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.channels.words import Without
from pipeline.models.decoder import Decoder
from pipeline.models.decoding import decoding
from pipeline.models.unroll import speak
from pipeline.protocols import Channel
from pipeline.types import Batch


@dataclass(frozen=True)
class Captioned:
    """M images and what was said of them, on the CPU; their regions are not kept."""

    tokens: Tensor  # (M, S, T): S captions of each image
    images: Tensor  # (M,): rows of the prepared data set
    pooled: Tensor  # (M, P)


@torch.no_grad()
def captions(
    speaker: Decoder,
    batches: Iterable[Batch],
    channel: Channel,
    device: torch.device,
    unk: int,
    dtype: torch.dtype | None = None,
) -> Captioned:
    """All captions of each image of `batches` through `channel`, in their order, without dropout.

    The word `unk` is never said; −1: there is none. What is drawn depends on the number of its batch (`step`) alone.
    `dtype`: of large products; None: the weights' own.
    """
    speaker = decoding(speaker.to(device).eval(), dtype)
    channel = Without(channel, unk) if unk >= 0 else channel
    said, images, pooled = [], [], []
    for batch in batches:
        rng = torch.Generator(device).manual_seed(batch.step)
        tokens = speak(speaker, batch.to(device), channel, rng).tokens
        said.append(pad(tokens, (0, speaker.max_words - tokens.shape[1])).unflatten(0, (len(batch), -1)).cpu())
        images.append(batch.images)
        pooled.append(batch.pooled)
    return Captioned(torch.cat(said), torch.cat(images), torch.cat(pooled))
