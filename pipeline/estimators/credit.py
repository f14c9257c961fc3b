"""A score's share per word: what each word of a caption answers for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.protocols import Channel, Rollouts, Score


@dataclass(frozen=True)
class Continuations:
    """A word is worth what captions score that begin with the words up to it (Liu et al. 2017, Q by Monte Carlo).

    Q(w₁ … wₜ₋₁, wₜ) is the mean score of `samples` captions that the speaker itself goes on with from there, dropout
    included; of the word that ends a caption it is the caption's own score.
    """

    samples: int = 3
    by_word = True

    def __call__(self, value: Tensor, score: Score, channel: Channel, rollouts: Rollouts) -> Tensor:
        return rollouts.once((self, score, channel), lambda: self._worth(value, score, channel, rollouts))

    @torch.no_grad()
    def _worth(self, value: Tensor, score: Score, channel: Channel, rollouts: Rollouts) -> Tensor:
        message = rollouts.of(channel)
        found = score(rollouts.continued(channel, self.samples), rollouts.batch).view(len(message), -1, self.samples)
        worth = pad(found.mean(2), (0, 1))[:, : message.tokens.shape[1]]
        last = message.mask.sum(1, keepdim=True) - 1
        return worth.scatter(1, last, value.detach().unsqueeze(1))
