"""Inference-optimised copies of speakers with frozen weights, for one batch of captions or many."""

from __future__ import annotations

import torch

from pipeline.models.decoder import Decoder
from pipeline.models.guided import GuidedDecoder
from pipeline.models.kernels.dispatch import has_fast_form


def optimise_for_batch(speaker: Decoder, captions: int) -> Decoder:
    """Return `optimise_for_decoding(speaker)` if it saves time for one batch of `captions` captions, else `speaker`.

    The copy computes a table of the vocabulary once. This saves time if the batch can have more than two tokens per
    word of the vocabulary.
    """
    return optimise_for_decoding(speaker) if speaker.vocabulary < captions * speaker.max_words // 2 else speaker


def optimise_for_decoding(speaker: Decoder, dtype: torch.dtype | None = None) -> Decoder:
    """Return an inference-optimised copy of `speaker` without dropout or gradients, or `speaker` itself.

    `Att2in` on a CPU has an optimised form. A `GuidedDecoder` is always copied, around its optimised inner decoder. All
    other speakers are returned unchanged. `dtype` is the precision of large matrix products; None: the weights'
    precision, with which captions stay the same. With another precision, such as bfloat16, some captions differ.
    """
    if isinstance(speaker, GuidedDecoder):
        return GuidedDecoder(optimise_for_decoding(speaker.inner, dtype), speaker.gamma)
    if not has_fast_form(speaker):
        return speaker
    from pipeline.models.kernels.fast_att2in import InferenceAtt2in

    return InferenceAtt2in(speaker, dtype)
