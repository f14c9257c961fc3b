"""Several candidates per image, of which a listener takes the one by which it finds the image most surely."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pipeline.channels.searched import unrepeated
from pipeline.channels.words import Multinomial
from pipeline.evaluation.generate import Captioned, captions
from pipeline.evaluation.judges import Judge, Spoken
from pipeline.models.decoder import Decoder
from pipeline.types import Batch
from pipeline.vocabulary import Vocabulary

AT_ONCE = 2**22  # scores that are held at once


@dataclass(frozen=True)
class Chosen:
    """Of M images, each with K candidates."""

    best: Tensor  # (M,) int64: which candidate
    margins: Tensor  # (M, K): by how much the image's score lies above that of the best other one; inf: no other
    ranks: Tensor  # (M, K) int64: of the image among all, 1 is best; a tie counts against it


def most_telling(heard: Tensor, images: Tensor, others: Tensor, same: Tensor) -> Chosen:
    """Which of the candidates `heard` (M, K, D) a listener tells apart best.

    An image is found surely where its score, the inner product with `images` (M, D), lies far above the highest one
    among `others` (N, D). `same` (M, N) bool: which others are the image itself and do not count. Of candidates that
    are equally good the first is taken. Sums are of double precision, compared in single, as in metrics/retrieval.py.
    """
    margins, ranks = heard.new_empty(heard.shape[:2]), heard.new_empty(heard.shape[:2], dtype=torch.int64)
    transposed = others.double().T
    rows = max(1, AT_ONCE // max(1, heard.shape[1] * len(others)))
    for part in torch.arange(len(heard), device=heard.device).split(rows):
        said = heard[part].double()
        right = (said * images[part].double().unsqueeze(1)).sum(2).float()
        scores = (said @ transposed).float().masked_fill(same[part].unsqueeze(1), -torch.inf)
        best = scores.amax(2) if len(others) else torch.full_like(right, -torch.inf)
        margins[part] = right - best
        ranks[part] = 1 + (scores >= right.unsqueeze(2)).sum(2)
    return Chosen(first_of_the_best(margins), margins, ranks)


def first_of_the_best(values: Tensor) -> Tensor:
    """(M,) int64: where each row of (M, K) has its maximum first."""
    return (values == values.amax(1, keepdim=True)).int().argmax(1)


@dataclass(frozen=True)
class Reranked:
    """Captions at evaluation: of `samples` drawn of an image, the one by which `judge`, the speaker's own listener,
    finds it most surely among all images of the split."""

    samples: int
    judge: Judge

    def captions(
        self,
        speaker: Decoder,
        batches: Iterable[Batch],
        vocabulary: Vocabulary,
        device: torch.device,
        no_repeat: int | None = None,
    ) -> Captioned:
        """One caption of each image of `batches`, as `captions` gives them."""
        channel = unrepeated(Multinomial(self.samples, learns=False), no_repeat)
        said = captions(speaker, batches, channel, device, vocabulary.unk)
        flat = said.tokens.flatten(0, 1)
        heard, seen = self.judge.vectors(Spoken(flat, [vocabulary.decode(row) for row in flat.tolist()]), said.images)
        same = torch.eye(len(seen), dtype=torch.bool, device=seen.device)
        best = most_telling(heard.unflatten(0, said.tokens.shape[:2]), seen, seen, same).best.cpu()
        return replace(said, tokens=said.tokens[torch.arange(len(best)), best].unsqueeze(1))
