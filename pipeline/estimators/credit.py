"""Credit assignment: an estimate of the expected score for each token of a caption."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from pipeline.protocols import Channel, Rollouts, Score


@dataclass(frozen=True)
class MonteCarloCredit:
    """Monte-Carlo estimate of Q, the expected score of captions that begin with a prefix (Liu et al. 2017).

    Q(w₁ … wₜ₋₁, wₜ) is the mean score of `samples` continuations that the speaker generates, with dropout. For the
    caption's last token, Q is the caption's own score.
    """

    samples: int = 3
    per_token = True

    def __call__(self, value: Tensor, score: Score, channel: Channel, rollouts: Rollouts) -> Tensor:
        return rollouts.cached((self, score, channel), lambda: self._estimate(value, score, channel, rollouts))

    @torch.no_grad()
    def _estimate(self, value: Tensor, score: Score, channel: Channel, rollouts: Rollouts) -> Tensor:
        message = rollouts.get_message(channel)
        scores = score(rollouts.continue_prefixes(channel, self.samples), rollouts.batch).view(
            len(message), -1, self.samples
        )
        credit = pad(scores.mean(2), (0, 1))[:, : message.tokens.shape[1]]
        last = message.mask.sum(1, keepdim=True) - 1
        return credit.scatter(1, last, value.detach().unsqueeze(1))
