"""Inference-optimised speakers with frozen weights, for many batches of captions."""

from __future__ import annotations

import torch

from pipeline.models.decoder import Decoder
from pipeline.models.guided import GuidedDecoder
from pipeline.models.kernels.dispatch import has_fast_form


def optimize_for_batch(speaker: Decoder, captions: int) -> Decoder:
    """Return `optimize_for_decoding(speaker)` if its vocabulary table saves time for one batch, else `speaker`.

    `captions` is the number of captions in the batch.
    """
    return optimize_for_decoding(speaker) if speaker.vocabulary < captions * speaker.max_words // 2 else speaker


def optimize_for_decoding(speaker: Decoder, dtype: torch.dtype | None = None) -> Decoder:
    """Return an inference-optimised copy of `speaker` without dropout or gradients, or `speaker` where none exists.

    The captions are the same. With matrix products in another `dtype`, such as bfloat16, some captions differ.
    """
    if isinstance(speaker, GuidedDecoder):
        return GuidedDecoder(optimize_for_decoding(speaker.inner, dtype), speaker.gamma)
    if not has_fast_form(speaker):
        return speaker
    from pipeline.models.kernels.fast_att2in import InferenceAtt2in

    return InferenceAtt2in(speaker, dtype)
