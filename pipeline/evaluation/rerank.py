"""Reranking: sample several captions per image and keep the one with the highest margin or similarity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pipeline.channels.hard import Multinomial, TemperatureScaling
from pipeline.channels.search import ban_repeated_ngrams
from pipeline.evaluation.generate import GeneratedCaptions, generate_captions
from pipeline.evaluation.judges import Judge, JudgedCaptions
from pipeline.evaluation.rerank_scores import SIMILARITY
from pipeline.models.decoder import Decoder
from pipeline.types import Batch
from pipeline.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pipeline.evaluation.evaluation_settings import RerankSettings

MAX_SCORES = 2**22  # scores held in memory


@dataclass(frozen=True)
class CandidateRanking:
    """Listener's ranking of K candidate captions for each of M images."""

    best: Tensor  # (M,) int64: index of the best candidate
    margins: Tensor  # (M, K): the image's score minus the highest other image's score; inf if there is no other image
    ranks: Tensor  # (M, K) int64: rank of the image among all images, 1 is best; a tie counts against the image


def rank_candidates(candidates: Tensor, images: Tensor, others: Tensor, same: Tensor) -> CandidateRanking:
    """Rank the candidate embeddings `candidates` (M, K, D) by the listener's retrieval margin.

    The margin is the image's score, the inner product with `images` (M, D), minus the highest score among `others` (N,
    D). `same` (M, N) bool marks the others that are the image itself; they are excluded. Among equally good candidates
    the first is taken. Sums are computed in double precision and compared in single precision, as in `rank_gallery`.
    """
    margins = candidates.new_empty(candidates.shape[:2])
    ranks = candidates.new_empty(candidates.shape[:2], dtype=torch.int64)
    transposed = others.double().T
    rows = max(1, MAX_SCORES // max(1, candidates.shape[1] * len(others)))
    for part in torch.arange(len(candidates), device=candidates.device).split(rows):
        embeddings = candidates[part].double()
        own_scores = (embeddings * images[part].double().unsqueeze(1)).sum(2).float()
        scores = (embeddings @ transposed).float().masked_fill(same[part].unsqueeze(1), -torch.inf)
        best = scores.amax(2) if len(others) else torch.full_like(own_scores, -torch.inf)
        margins[part] = own_scores - best
        ranks[part] = 1 + (scores >= own_scores.unsqueeze(2)).sum(2)
    return CandidateRanking(find_first_argmax(margins), margins, ranks)


def find_most_similar(candidates: Tensor, images: Tensor) -> Tensor:
    """Return the index (M,) int64 of each image's most similar candidate, from embeddings (M, K, D) and (M, D)."""
    return find_first_argmax((candidates * images.unsqueeze(1)).sum(2))


def find_first_argmax(values: Tensor) -> Tensor:
    """Return the index (M,) int64 of the first maximum in each row of `values` (M, K)."""
    return (values == values.amax(1, keepdim=True)).int().argmax(1)


@dataclass(frozen=True)
class Reranker:
    """Reranking at evaluation by `judge`, the listener that `settings` names.

    The reranker keeps one of the captions drawn for an image. With the score `margin`, it keeps the caption with the
    largest margin over all other images of the split. With `similarity`, it keeps the caption most similar to the
    image.
    """

    settings: RerankSettings
    judge: Judge

    def generate(
        self,
        speaker: Decoder,
        batches: Iterable[Batch],
        vocabulary: Vocabulary,
        device: torch.device,
        no_repeat: int | None = None,
    ) -> GeneratedCaptions:
        """Return one caption of each image of `batches`, in the format of `generate_captions`; UNK is masked.

        `no_repeat` is the length of the n-grams that no caption repeats; None: no limit.
        """
        sampling, temperature = Multinomial(self.settings.samples, requires_grad=False), self.settings.temperature
        scaled = sampling if temperature == 1 else TemperatureScaling(sampling, temperature)
        channel = ban_repeated_ngrams(scaled, no_repeat)
        generated = generate_captions(speaker, batches, channel, device, vocabulary.unk)
        flat = generated.tokens.flatten(0, 1)
        candidates, images = self.judge.embed(
            JudgedCaptions(flat, [vocabulary.decode(row) for row in flat.tolist()]), generated.images
        )
        candidates = candidates.unflatten(0, generated.tokens.shape[:2])
        if self.settings.score == SIMILARITY:
            best = find_most_similar(candidates, images).cpu()
        else:
            same = torch.eye(len(images), dtype=torch.bool, device=images.device)
            best = rank_candidates(candidates, images, images, same).best.cpu()
        return replace(generated, tokens=generated.tokens[torch.arange(len(best)), best].unsqueeze(1))
