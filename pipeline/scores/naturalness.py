"""Does the caption read like the human ones?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.metrics.cider import CiderD
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class Cider:
    """CIDEr-D (×10) against the image's human captions; not differentiable."""

    scorer: CiderD
    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return self.scorer(message.tokens, batch.images[message.images])


@dataclass(frozen=True)
class Given:
    """1 for every caption: with words forced on the speaker, its score-function surrogate is the cross-entropy."""

    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return torch.ones(len(message), device=message.tokens.device)
