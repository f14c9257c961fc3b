"""Exploration scores: diversity of an image's captions, and entropy of each token's distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.metrics.cider import mask_after_end
from pipeline.metrics.overlap import compute_bleu_per_caption
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class SetDistance:
    """Mean distance d(j, k) of caption j to the samples k of its image (Chen and Jin 2020, Eq. 14); not differentiable.

    d = (1 − BLEU-3) + (1 − BLEU-4) of j against k, on words without EOS, from 0 to 2. Equal captions have distance 0
    by definition, since BLEU-4 of a caption of three words with itself is not 1.
    """

    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        words, samples = mask_after_end(message.tokens.to(torch.int16), eos=False), message.samples  # (T, N)
        repeated = words.repeat_interleave(samples, 1)  # (T, N·S): caption j in column (j, k)
        other = words.unflatten(1, (-1, samples)).repeat_interleave(samples, 1).flatten(1)
        bleu = compute_bleu_per_caption(repeated, other.unsqueeze(1))
        distance = (2 - bleu[2] - bleu[3]).masked_fill((repeated == other).all(0), 0)
        return distance.view(-1, samples).mean(1).to(batch.pooled.dtype)


@dataclass(frozen=True)
class TokenEntropy:
    """Sum over a caption's tokens, EOS included, of the entropy of their distributions, in nats.

    With `Pathwise`, the sum is the maximum-entropy regularisation of policy gradients, with the sampled tokens held
    fixed (Mnih et al. 2016). With `ScoreFunction` and the reduction "words", the gradient is unbiased for the entropy
    of whole captions.
    """

    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        assert message.entropies is not None, "expected a message of a channel with `entropies`"
        return message.entropies.sum(1)
