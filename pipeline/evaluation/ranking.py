"""How models rank the candidate answers of rounds: by likelihood, or by a discriminator's score."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pipeline.metrics.ranking import ranks, summary
from pipeline.models.decoder import Decoder
from pipeline.models.discriminator import Discriminator
from pipeline.models.unroll import read
from pipeline.types import Batch

TOGETHER = 4096  # candidates that are read at once


@torch.no_grad()
def likelihoods(speaker: Decoder, batch: Batch) -> Tensor:
    """(N, O): log p of every candidate, EOS included. Without dropout."""
    asked = batch.asked
    assert asked is not None
    speaker.eval()
    seen, many, found = speaker.see(batch), asked.options.shape[1], []
    each = max(1, TOGETHER // many)
    for first in range(0, len(batch), each):
        rows = torch.arange(first, min(first + each, len(batch)), device=batch.device)
        # the same texts once a round: like ones tie to the bit
        options, place = _different(asked.options[rows])
        owners = rows[options[:, 0]]
        some = replace(batch, images=batch.images[owners], captions=asked.answers[options[:, 1]], asked=None)
        message = read(speaker, some, seen=seen[owners])
        assert message.log_probs is not None
        found.append(message.log_probs.sum(1)[place])
    return torch.cat(found)


@torch.no_grad()
def judged(discriminator: Discriminator, batch: Batch) -> Tensor:
    """(N, O): the discriminator's score of every candidate. Without dropout."""
    asked = batch.asked
    assert asked is not None
    discriminator.eval()
    answers = discriminator.read(asked.answers)
    return (discriminator.see(batch) @ answers.T).gather(1, asked.options)


def _different(options: Tensor) -> tuple[Tensor, Tensor]:
    """The different pairs (M, 2) of a row and an option of `options` (n, O), and which one each is, (n, O)."""
    rows = torch.arange(len(options), device=options.device).unsqueeze(1).expand_as(options)
    pairs, place = torch.stack([rows, options], -1).flatten(0, 1).unique(dim=0, return_inverse=True)
    return pairs, place.view(options.shape)


@dataclass(frozen=True)
class RankingValidation:
    """MRR, R@k and mean rank of `batches()`, a whole split in order, by the one who answers, else by who listens."""

    speaker: Decoder | None
    listener: nn.Module | None
    batches: Callable[[], Iterable[Batch]]
    device: torch.device

    def __call__(self) -> dict[str, float]:
        found = []
        for batch in (batch.to(self.device) for batch in self.batches()):
            assert batch.asked is not None
            if self.speaker is not None:
                scores = likelihoods(self.speaker, batch)
            else:
                assert isinstance(self.listener, Discriminator)
                scores = judged(self.listener, batch)
            found.append(ranks(scores, batch.asked.truth))
        return summary(torch.cat(found))
