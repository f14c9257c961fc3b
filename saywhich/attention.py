"""Where a speaker looked while it said a word."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder, Dropout
from pipeline.models.guided import Guided
from pipeline.numbers import Numbers
from pipeline.types import Batch


@torch.no_grad()
def attention(speaker: Decoder, batch: Batch) -> Tensor | None:
    """(M, T, R): of the captions (M, T) of a batch, each word's attention to each region, 1 in all.

    None for a speaker that does not have one attention per word.
    """
    speaker = speaker.inner if isinstance(speaker, Guided) else speaker
    if not isinstance(speaker, Att2in):
        return None
    state, found = speaker.begin(batch, speaker.see(batch), Dropout(0.0, Numbers(batch, None)), 1), []
    for words in speaker.before(batch.captions).unbind(1):
        found.append(speaker.shares(speaker.query(state.h), state))
        _, state = speaker.step(speaker.word(words), state)
    return torch.stack(found, 1)
