"""Generation of captions of many images with UNK masked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.channels.hard import BanToken
from pipeline.models.decoder import Decoder
from pipeline.models.inference import optimise_for_decoding
from pipeline.models.unroll import generate
from pipeline.protocols import Channel
from pipeline.types import Batch


@dataclass(frozen=True)
class GeneratedCaptions:
    """Generated captions of M images, without region features."""

    tokens: Tensor  # (M, S, T): S captions of each image, on the CPU
    images: Tensor  # (M,): rows of the prepared data set
    pooled: Tensor  # (M, P)


@torch.no_grad()
def generate_captions(
    speaker: Decoder,
    batches: Iterable[Batch],
    channel: Channel,
    device: torch.device,
    unk: int,
    dtype: torch.dtype | None = None,
) -> GeneratedCaptions:
    """Generate the captions of each image of `batches` through `channel`, in order and without dropout.

    The token `unk` is never generated; −1: no token is masked. The random seed of a batch is its number (`step`).
    `speaker` is moved to `device` and set to evaluation mode, in place. `dtype` is the type of large matrix products of
    an optimised speaker; None: the weights' type. Other speakers keep the type of their weights.
    """
    speaker = optimise_for_decoding(speaker.to(device).eval(), dtype)
    channel = BanToken(channel, unk) if unk >= 0 else channel
    captions, images, pooled = [], [], []
    for batch in batches:
        rng = torch.Generator(device).manual_seed(batch.step)
        tokens = generate(speaker, batch.to(device), channel, rng).tokens
        captions.append(pad(tokens, (0, speaker.max_words - tokens.shape[1])).unflatten(0, (len(batch), -1)).cpu())
        images.append(batch.images)
        pooled.append(batch.pooled)
    return GeneratedCaptions(torch.cat(captions), torch.cat(images), torch.cat(pooled))
