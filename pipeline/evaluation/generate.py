"""Captions of many images."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.models.speaker import Speaker
from pipeline.protocols import Channel
from pipeline.types import Batch


@torch.no_grad()
def captions(speaker: Speaker, batches: Iterable[Batch], channel: Channel, device: torch.device) -> Tensor:
    """(M, T) tokens on the CPU: the first caption of each image of `batches`, in their order, without dropout."""
    speaker = speaker.to(device).eval()
    rng = torch.Generator(device).manual_seed(0)
    said = []
    for batch in batches:
        tokens = speaker.speak(batch.to(device), channel, rng).tokens[:: channel.samples]
        said.append(pad(tokens, (0, speaker.max_words - tokens.shape[1])).cpu())
    return torch.cat(said)
