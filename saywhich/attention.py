"""Attention of a speaker to the regions of an image, word by word."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.models.guided import GuidedDecoder
from pipeline.random import BatchRandom
from pipeline.types import Batch


@torch.no_grad()
def compute_caption_attention(speaker: Decoder, batch: Batch) -> Tensor | None:
    """Return the attention (B, T, R) of each word of the batch's captions (B, T) to each region; each row sums to 1.

    Returns None for a speaker without one attention distribution per word.
    """
    speaker = speaker.inner if isinstance(speaker, GuidedDecoder) else speaker
    if not isinstance(speaker, Att2in):
        return None
    no_dropout = RolloutDropout(0.0, BatchRandom(batch, None))
    state = speaker.begin(batch, speaker.encode_image(batch), no_dropout, 1)
    attention = []
    for words in speaker.shift_right(batch.captions).unbind(1):
        attention.append(speaker.attention_weights(speaker.query(state.h), state))
        _, state = speaker.step(speaker.word(words), state)
    return torch.stack(attention, 1)
