"""How much better a caption fits its image than other captions do, and than it fits other images (WTF-RL, Eq. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pipeline.models.listener import Listener
from pipeline.models.retriever import Retriever
from pipeline.protocols import Channel, Rollouts, Score
from pipeline.runtime import ranks
from pipeline.types import Batch, Message

Directions = Literal["both", "image_to_text", "text_to_image"]
Combine = Literal["sum", "mean"]


def look(retriever: Retriever | Listener, batch: Batch) -> Tensor:
    """(B, D): the images of the batch."""
    return retriever.look(batch) if isinstance(retriever, Retriever) else retriever.see(batch.pooled)


@dataclass(frozen=True)
class Similarity:
    """The cosine of a caption with its image."""

    retriever: Retriever | Listener

    @property
    def differentiable(self) -> bool:
        return isinstance(self.retriever, Listener) or self.retriever.differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return (self.retriever.hear(message) * look(self.retriever, batch)[message.images]).sum(1)


@dataclass(frozen=True)
class ClipScore:
    """2.5 · max(cosine, 0) of a caption with its image (CLIP-S, Hessel et al. 2021)."""

    similarity: Similarity

    @property
    def differentiable(self) -> bool:
        return self.similarity.differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return 2.5 * self.similarity(message, batch).clamp(min=0)


@dataclass(frozen=True)
class Contrastive:
    """τ · the log-ratio of a caption's fit to its image, to that of other captions with it and of it with other images.

    The pair itself is in no denominator (decoupled), so at a small `temperature` τ each direction is the cosine minus
    that of the hardest negative. The captions are those of the whole batch through the caption's own channel (of
    several samples per image those of its own number) and through the channels `captions`. The images are those of the
    batch and those like them that the retriever knows, each once. Where there is no negative, 0.
    """

    retriever: Retriever | Listener
    captions: tuple[Channel, ...]
    temperature: float
    directions: Directions = "both"
    combine: Combine = "sum"  # of both directions
    clamp: float | None = None  # the most that a log-ratio counts, before it is multiplied by τ

    @property
    def differentiable(self) -> bool:
        return Similarity(self.retriever).differentiable

    def among(self, rollouts: Rollouts) -> Score:
        """The score of this step's captions."""
        said = [rollouts.of(channel) for channel in self.captions]
        return _Among(self, tuple(said))

    def ratios(self, own: Tensor, others: Tensor, excluded: Tensor) -> Tensor:
        """(S, B) log-ratios of cosines `own` (S, B) to `others` (S, B, n), but for the `excluded` ones (B, n)."""
        if excluded.shape[1] == 1:
            return torch.zeros_like(own)
        against = (others / self.temperature).masked_fill(excluded, -torch.inf).logsumexp(2)
        ratio = own / self.temperature - against
        return ratio if self.clamp is None else ratio.clamp(max=self.clamp)


@dataclass(frozen=True)
class _Among:
    """`inner` among the captions `said` in this step."""

    inner: Contrastive
    said: Sequence[Message]

    @property
    def differentiable(self) -> bool:
        return self.inner.differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        inner = self.inner
        heard, seen = self._heard(message), ranks.gathered(look(inner.retriever, batch))  # (B, S, D), (B, D)
        own = (heard * seen.unsqueeze(1)).sum(2).T  # (S, B)
        found = []
        if inner.directions != "text_to_image":
            found.append(inner.ratios(own, *self._captions(message, heard, seen)))
        if inner.directions != "image_to_text":
            rows, images = self._images(batch, seen)
            mine = rows[: len(seen)].unsqueeze(1) == rows
            again = (rows.unsqueeze(1) == rows).tril(-1).any(1)
            found.append(inner.ratios(own, (heard @ images.T).transpose(0, 1), mine | again))
        value = inner.temperature * torch.stack(found).sum(0)
        if inner.combine == "mean":
            value = value / len(found)
        return ranks.own(value, 1).T.flatten()

    def _heard(self, message: Message) -> Tensor:
        vectors = self.inner.retriever.hear(message)
        return ranks.gathered(vectors.view(-1, message.samples, vectors.shape[1]))

    def _captions(self, message: Message, heard: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """(S, B, n) cosines of all captions with each image, and (B, n) which of them is the caption itself."""
        itself = torch.eye(len(seen), dtype=torch.bool, device=seen.device)
        cosines, excluded = [torch.einsum("xsd,bd->sbx", heard, seen)], [itself]
        for other in self.said:
            if other.tokens is message.tokens:
                continue
            found = torch.einsum("xsd,bd->bxs", self._heard(other), seen).flatten(1)
            cosines.append(found.expand(message.samples, -1, -1))
            excluded.append(torch.zeros_like(found, dtype=torch.bool))
        return torch.cat(cosines, 2), torch.cat(excluded, 1)

    def _images(self, batch: Batch, seen: Tensor) -> tuple[Tensor, Tensor]:
        """(n,) rows and (n, D) vectors of the images of the batch, and of those like them."""
        retriever, rows = self.inner.retriever, ranks.gathered(batch.images)
        if not isinstance(retriever, Retriever) or retriever.neighbours is None:
            return rows, seen
        more = retriever.neighbours[rows].flatten()
        return torch.cat([rows, more]), torch.cat([seen, retriever.vectors[more]])
