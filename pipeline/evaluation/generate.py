"""Captions of many images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.models.decoder import Decoder
from pipeline.models.decoding import decoding
from pipeline.models.unroll import speak
from pipeline.protocols import Channel
from pipeline.types import Batch


@dataclass(frozen=True)
class Captioned:
    """M images and what was said of them, on the CPU; their regions are not kept."""

    tokens: Tensor  # (M, T)
    images: Tensor  # (M,): rows of the prepared data set
    pooled: Tensor  # (M, P)


@torch.no_grad()
def captions(
    speaker: Decoder,
    batches: Iterable[Batch],
    channel: Channel,
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Captioned:
    """The first caption of each image of `batches`, in their order, without dropout; `dtype`: of large products."""
    speaker = decoding(speaker.to(device).eval(), dtype)
    rng = torch.Generator(device).manual_seed(0)
    said, images, pooled = [], [], []
    for batch in batches:
        tokens = speak(speaker, batch.to(device), channel, rng).tokens[:: channel.samples]
        said.append(pad(tokens, (0, speaker.max_words - tokens.shape[1])).cpu())
        images.append(batch.images)
        pooled.append(batch.pooled)
    return Captioned(torch.cat(said), torch.cat(images), torch.cat(pooled))
