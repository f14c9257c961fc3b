"""How varied is what the speaker says of an image: in whole captions, and in each word's distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.metrics.cider import words_of
from pipeline.metrics.overlap import bleu
from pipeline.types import Batch, Message


@dataclass(frozen=True)
class SetDistance:
    """Mean distance d(j, k) of caption j to the samples k of its image (Chen and Jin 2020, Eq. 14); not differentiable.

    d = (1 − BLEU-3) + (1 − BLEU-4) of j against k, words only, from 0 to 2; 0 between equal captions, as a distance
    must be: BLEU-4 of a caption of three words with itself is no 1.
    """

    differentiable = False

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        words, samples = words_of(message.tokens.to(torch.int16), eos=False), message.samples  # (T, N)
        each = words.repeat_interleave(samples, 1)  # (T, N·s): each caption beside each of its image's
        other = words.unflatten(1, (-1, samples)).repeat_interleave(samples, 1).flatten(1)
        found = bleu(each, other.unsqueeze(1))
        distance = (2 - found[2] - found[3]).masked_fill((each == other).all(0), 0)
        return distance.view(-1, samples).mean(1).to(batch.pooled.dtype)


@dataclass(frozen=True)
class Entropy:
    """Sum over a caption's words, EOS included, of the entropy of their distributions, in nats.

    Through `Pathwise`, the maximum-entropy regularisation of policy gradients: words that were said stay as they are
    (Mnih et al. 2016). Through `ScoreFunction` with the reduction "words", the entropy of whole captions, unbiased.
    """

    differentiable = True

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        assert message.entropies is not None, "only messages of a channel with `entropies` have them"
        return message.entropies.sum(1)
