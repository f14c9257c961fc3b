"""Naturalness: CIDEr-D against human captions, and the constant score of human captions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.metrics.cider import CiderD
from pipeline.runtime import ranks
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class CiderScore:
    """CIDEr-D (×10) against the image's human captions; not differentiable."""

    scorer: CiderD
    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        tokens, images = message.tokens, batch.images[message.images]
        if self.scorer.frequencies == "train" or ranks.count_ranks() == 1:
            return self.scorer(tokens, images)
        tokens = F.pad(tokens, (0, ranks.all_max(tokens.shape[1], tokens.device) - tokens.shape[1]))
        # document frequencies are counted over the whole batch
        scores = self.scorer(ranks.gather_with_gradient(tokens), ranks.gather_with_gradient(images))
        return ranks.get_own_part(scores)


@dataclass(frozen=True)
class HumanCaption:
    """Constant score 1: over forced tokens, its score-function surrogate is the cross-entropy."""

    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return torch.ones(len(message), device=message.tokens.device)
