"""How likely the captioner finds what people say: ever less, the further it leaves their language behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from pipeline.data.prepared import Prepared
from pipeline.models.decoder import Decoder
from pipeline.models.unroll import read
from pipeline.types import Batch


@torch.no_grad()
def human_log_likelihood(speaker: Decoder, batches: Iterable[Batch], prepared: Prepared, device: torch.device) -> float:
    """Mean log-probability (natural) of a word of all human captions of the images, EOS included, without dropout.

    Captions as the speaker learned them: clipped, words that it does not know as UNK.
    """
    speaker = speaker.to(device).eval()
    total, words = 0.0, 0
    for batch in batches:
        references = torch.from_numpy(prepared.references(batch.images.numpy())).long()  # (n, K, T)
        here = batch.to(device)
        seen = speaker.see(here)
        for captions in references.unbind(1):
            message = read(speaker, replace(here, captions=captions.to(device)), seen=seen)
            assert message.log_probs is not None
            there = captions.any(1).to(device)  # an image with fewer captions than others has empty ones
            total += float(message.log_probs[there].double().sum())
            words += int(message.mask[there].sum())
    return total / words
