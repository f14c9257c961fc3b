"""Log-likelihood of human captions under the speaker, a measure of language drift."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from pipeline.data.prepared import PreparedData
from pipeline.models.decoder import Decoder
from pipeline.models.unroll import teacher_force
from pipeline.types import Batch


@torch.no_grad()
def compute_human_log_likelihood(
    speaker: Decoder, batches: Iterable[Batch], prepared: PreparedData, device: torch.device
) -> float:
    """Return the mean log-probability (natural) per token of all human captions, EOS included, without dropout.

    Captions are encoded as in training: clipped, with unknown words as UNK.
    """
    speaker = speaker.to(device).eval()
    total, tokens = 0.0, 0
    for batch in batches:
        references = torch.from_numpy(prepared.references(batch.images.numpy())).long()  # (B, K, T)
        on_device = batch.to(device)
        encoded = speaker.encode_image(on_device)
        for captions in references.unbind(1):
            message = teacher_force(speaker, replace(on_device, captions=captions.to(device)), encoded=encoded)
            assert message.log_probs is not None
            present = captions.any(1).to(device)  # images with fewer captions are padded with empty ones
            total += float(message.log_probs[present].double().sum())
            tokens += int(message.mask[present].sum())
    return total / tokens
