"""Does the caption read like the human ones?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.metrics.cider import CiderD
from pipeline.runtime import ranks
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class Cider:
    """CIDEr-D (×10) against the image's human captions; not differentiable."""

    scorer: CiderD
    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        tokens, images = message.tokens, batch.images[message.images]
        if self.scorer.frequencies == "train" or ranks.size() == 1:
            return self.scorer(tokens, images)
        tokens = F.pad(tokens, (0, ranks.most(tokens.shape[1], tokens.device) - tokens.shape[1]))
        return ranks.own(
            self.scorer(ranks.gathered(tokens), ranks.gathered(images))
        )  # the whole batch are the documents


@dataclass(frozen=True)
class Given:
    """1 for every caption: with words forced on the speaker, its score-function surrogate is the cross-entropy."""

    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return torch.ones(len(message), device=message.tokens.device)
