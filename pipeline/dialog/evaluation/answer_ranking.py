"""Ranking of the candidate answers of dialog rounds, by likelihood or by a discriminator's score."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pipeline.dialog.data.dialog_questions import get_questions
from pipeline.dialog.evaluation.candidate_ranking import compute_candidate_ranks, summarise_ranking
from pipeline.dialog.models.discriminator import Discriminator
from pipeline.models.decoder import Decoder
from pipeline.models.unroll import teacher_force
from pipeline.types import Batch

CANDIDATES_AT_ONCE = 4096  # candidates per forward pass


@torch.no_grad()
def compute_candidate_likelihoods(speaker: Decoder, batch: Batch) -> Tensor:
    """Return log p (N, O) of every candidate, EOS included, without dropout."""
    rounds = get_questions(batch)
    speaker.eval()
    encoded, log_probs = speaker.encode_image(batch), []
    step = max(1, CANDIDATES_AT_ONCE // rounds.options.shape[1])
    for first in range(0, len(batch), step):
        rows = torch.arange(first, min(first + step, len(batch)), device=batch.device)
        # each distinct text of a round is scored once, so that equal texts have exactly equal scores
        pairs, pair_of_option = _find_distinct_options(rounds.options[rows])
        questions = rows[pairs[:, 0]]
        part = replace(batch, images=batch.images[questions], captions=rounds.answers[pairs[:, 1]])
        message = teacher_force(speaker, part, encoded=encoded[questions])
        assert message.log_probs is not None
        log_probs.append(message.log_probs.sum(1)[pair_of_option])
    return torch.cat(log_probs)


@torch.no_grad()
def compute_discriminator_scores(discriminator: Discriminator, batch: Batch) -> Tensor:
    """Return the discriminator's score (N, O) of every candidate, without dropout."""
    rounds = get_questions(batch)
    discriminator.eval()
    answers = discriminator.encode_answers(rounds.answers)
    return (discriminator.encode_question(batch) @ answers.T).gather(1, rounds.options)


def _find_distinct_options(options: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct pairs (M, 2) of a row and an option of `options` (n, O), and each option's pair (n, O)."""
    rows = torch.arange(len(options), device=options.device).unsqueeze(1).expand_as(options)
    pairs, pair_of_option = torch.stack([rows, options], -1).flatten(0, 1).unique(dim=0, return_inverse=True)
    return pairs, pair_of_option.view(options.shape)


@dataclass(frozen=True)
class RankingValidation:
    """Validation by MRR, R@k and mean rank of `batches()`, a whole split in order.

    The speaker ranks candidates by likelihood. Without a speaker, the listener, a discriminator, ranks them by score.
    """

    speaker: Decoder | None
    listener: nn.Module | None
    batches: Callable[[], Iterable[Batch]]
    device: torch.device

    def __call__(self) -> dict[str, float]:
        ranks = []
        for batch in (batch.to(self.device) for batch in self.batches()):
            if self.speaker is not None:
                scores = compute_candidate_likelihoods(self.speaker, batch)
            else:
                assert isinstance(self.listener, Discriminator)
                scores = compute_discriminator_scores(self.listener, batch)
            ranks.append(compute_candidate_ranks(scores, get_questions(batch).truth))
        return summarise_ranking(torch.cat(ranks))
