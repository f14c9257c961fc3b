"""Pragmatic decoding at evaluation: an image's distractors are the split's nearest images by a judge's embeddings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline.evaluation.judges import JudgedCaptions, ListenerJudge, TextJudge
from pipeline.models.decoder import Decoder
from pipeline.models.inference import optimise_for_decoding
from pipeline.models.pragmatic_decoder import DistractorBatches, PragmaticDecoder, TokenAwareDecoder
from pipeline.models.retrieval_pragmatics import RetrievalPragmaticDecoder
from pipeline.types import Batch
from pipeline.vocabulary import Vocabulary

LISTENER = "listener"  # the posterior of the retrieval listener
MAX_SCORES = 2**22  # scores held in memory


@dataclass(frozen=True)
class PragmaticCaptions:
    """Pragmatic decoding with α = `alpha` and `distractors` images, the nearest by `judge` among a split's images.

    With `posterior` "listener", the posterior is the judge's. With another value, it is the speaker's, by Bayes' rule.
    """

    alpha: float
    distractors: int
    posterior: str
    judge: ListenerJudge | TextJudge

    def bind(
        self, speaker: Decoder, rows: np.ndarray, read_batch: Callable[[np.ndarray], Batch], vocabulary: Vocabulary
    ) -> TokenAwareDecoder:
        """Return the pragmatic speaker for the images `rows` (M,), whose features `read_batch` gives."""
        device = self.judge.device
        vectors = self.judge.encode_image(torch.from_numpy(rows))
        nearest = find_nearest_in_split(vectors, self.distractors)
        index_of = {int(row): index for index, row in enumerate(rows)}
        inner = optimise_for_decoding(speaker.to(device).eval())

        def get_indices(batch: Batch) -> Tensor:
            return torch.tensor([index_of[row] for row in batch.images.tolist()])

        def read_distractors(batch: Batch) -> DistractorBatches:
            distractors = nearest[get_indices(batch)]  # (B, K)
            batches = [read_batch(rows[column.clamp_min(0).numpy()]).to(device) for column in distractors.T]
            return DistractorBatches(batches, distractors >= 0)

        def embed(batch: Batch) -> Tensor:
            return stack_distractors(vectors, vectors[get_indices(batch)], nearest[get_indices(batch)])

        def encode_text(tokens: Tensor) -> Tensor:
            return self.judge.encode_text(JudgedCaptions(tokens, [vocabulary.decode(row) for row in tokens.tolist()]))

        if self.posterior == LISTENER:
            return RetrievalPragmaticDecoder(inner, self.alpha, embed, encode_text)
        return PragmaticDecoder(inner, self.alpha, read_distractors)


def stack_distractors(gallery: Tensor, vectors: Tensor, nearest: Tensor) -> Tensor:
    """Return embeddings (M, 1+K, D) of images `vectors` (M, D) and of rows `nearest` (M, K) of `gallery` (N, D).

    An index of −1 gives a vector of zeros.
    """
    missing = gallery.new_zeros(1, gallery.shape[1])  # the last row, −1
    return torch.cat([vectors.unsqueeze(1), torch.cat([gallery, missing])[nearest.to(gallery.device)]], 1)


def find_nearest_in_split(vectors: Tensor, number: int) -> Tensor:
    """Return the indices (M, number) of the nearest other images of M images with embeddings `vectors` (M, D).

    `find_nearest_among` defines similarity, ties and the padding of rows.
    """
    rows = torch.arange(len(vectors))
    parts = rows.split(max(1, MAX_SCORES // max(1, len(vectors))))
    return torch.cat([find_nearest_among(vectors[part], vectors, part.unsqueeze(1) == rows, number) for part in parts])


def find_nearest_among(vectors: Tensor, gallery: Tensor, same: Tensor, number: int) -> Tensor:
    """Return the indices (M, number) of the images nearest to each of M images, by inner product, nearest first.

    `vectors` (M, D) and `gallery` (N, D) are embeddings; `same` (M, N) bool marks the gallery's copies of an image,
    which are excluded. Ties keep the gallery's order. Where fewer than `number` images remain, −1 fills the row.
    """
    scores = (vectors.double() @ gallery.double().T).float().cpu().masked_fill(same.cpu(), -torch.inf)
    order = scores.argsort(dim=1, descending=True, stable=True)[:, :number]
    nearest = torch.full((len(vectors), number), -1)
    nearest[:, : order.shape[1]] = order.masked_fill(scores.gather(1, order).isneginf(), -1)
    return nearest
