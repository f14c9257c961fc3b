"""Similarity scores of captions and images, alone and contrasted with other captions and images."""

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


def encode_batch_images(retriever: Retriever | Listener, batch: Batch) -> Tensor:
    """Encode the images of the batch, (B, D)."""
    return retriever.encode_image(batch) if isinstance(retriever, Retriever) else retriever.encode_image(batch.pooled)


@dataclass(frozen=True)
class CosineScore:
    """Cosine of a caption and its image."""

    retriever: Retriever | Listener

    @property
    def differentiable(self) -> bool:
        return isinstance(self.retriever, Listener) or self.retriever.differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return (self.retriever.encode_text(message) * encode_batch_images(self.retriever, batch)[message.images]).sum(1)


@dataclass(frozen=True)
class ClipScore:
    """CLIP-S of a caption and its image: 2.5 · max(cosine, 0) (Hessel et al. 2021)."""

    similarity: CosineScore

    @property
    def differentiable(self) -> bool:
        return self.similarity.differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        return 2.5 * self.similarity(message, batch).clamp(min=0)


@dataclass(frozen=True)
class TargetLogProbability:
    """Log-probability of a caption's image: a softmax of cosine / τ over images (Dessì et al. 2023).

    The softmax is over the batch's images and their `neighbours` in the retriever, each image once.
    """

    retriever: Retriever | Listener
    temperature: float

    @property
    def differentiable(self) -> bool:
        return CosineScore(self.retriever).differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        images = ranks.gather_with_gradient(encode_batch_images(self.retriever, batch))
        rows, gallery = _append_neighbours(self.retriever, batch, images)
        logits = self.retriever.encode_text(message) @ gallery.T / self.temperature
        own = batch.images[message.images].unsqueeze(1) == rows  # `rows` may repeat an image
        total = logits.masked_fill(_is_repeated(rows), -torch.inf).logsumexp(1)
        return logits.gather(1, own.int().argmax(1, keepdim=True)).squeeze(1) - total


@dataclass(frozen=True)
class ContrastiveScore:
    """Contrastive score (WTF-RL, Eq. 2): τ times the log-ratios of a pair's exp(cosine / τ) to the sums over negatives.

    The negatives are other captions with the image, and other images with the caption. The pair itself is in no
    denominator (decoupled). At a small `temperature` τ, each direction is close to the cosine minus the hardest
    negative's cosine. Negative captions are the whole batch's captions from the caption's own channel and from the
    channels `captions`. In its own channel, the negatives of sample s are the samples s of the other images. Negative
    images are the batch's images and their `neighbours` in the retriever, each once. A direction without negatives adds
    0.
    """

    retriever: Retriever | Listener
    captions: tuple[Channel, ...]
    temperature: float
    directions: Directions = "both"
    combine: Combine = "sum"  # combination of both directions
    clamp: float | None = None  # maximum of a log-ratio before the factor τ

    @property
    def differentiable(self) -> bool:
        return CosineScore(self.retriever).differentiable

    def bind_batch(self, rollouts: Rollouts) -> Score:
        """Return the score with this step's captions from the channels `captions` as further negatives."""
        messages = [rollouts.get_message(channel) for channel in self.captions]
        return _BatchContrast(self, tuple(messages))

    def ratios(self, own: Tensor, others: Tensor, excluded: Tensor) -> Tensor:
        """Compute log-ratios (S, B) of cosines `own` (S, B) to `others` (S, B, n) without the `excluded` (B, n)."""
        if excluded.shape[1] == 1:
            return torch.zeros_like(own)
        denominator = (others / self.temperature).masked_fill(excluded, -torch.inf).logsumexp(2)
        ratio = own / self.temperature - denominator
        return ratio if self.clamp is None else ratio.clamp(max=self.clamp)


@dataclass(frozen=True)
class _BatchContrast:
    """Contrastive score `inner` with the captions `messages` of this step as negatives."""

    inner: ContrastiveScore
    messages: Sequence[Message]

    @property
    def differentiable(self) -> bool:
        return self.inner.differentiable

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        inner = self.inner
        captions = self._encode(message)  # (B, S, D)
        images = ranks.gather_with_gradient(encode_batch_images(inner.retriever, batch))  # (B, D)
        own = (captions * images.unsqueeze(1)).sum(2).T  # (S, B)
        ratios = []
        if inner.directions != "text_to_image":
            ratios.append(inner.ratios(own, *self._compute_cosines(message, captions, images)))
        if inner.directions != "image_to_text":
            rows, gallery = _append_neighbours(inner.retriever, batch, images)
            own_rows = rows[: len(images)].unsqueeze(1) == rows
            ratios.append(inner.ratios(own, (captions @ gallery.T).transpose(0, 1), own_rows | _is_repeated(rows)))
        value = inner.temperature * torch.stack(ratios).sum(0)
        if inner.combine == "mean":
            value = value / len(ratios)
        return ranks.get_own_part(value, 1).T.flatten()

    def _encode(self, message: Message) -> Tensor:
        vectors = self.inner.retriever.encode_text(message)
        return ranks.gather_with_gradient(vectors.view(-1, message.samples, vectors.shape[1]))

    def _compute_cosines(self, message: Message, captions: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines (S, B, n) of each image with the samples s and all captions of `messages`, and a mask (B, n).

        The mask marks the caption itself.
        """
        diagonal = torch.eye(len(images), dtype=torch.bool, device=images.device)
        cosines, excluded = [torch.einsum("xsd,bd->sbx", captions, images)], [diagonal]
        for other in self.messages:
            if other.tokens is message.tokens:
                continue
            similar = torch.einsum("xsd,bd->bxs", self._encode(other), images).flatten(1)
            cosines.append(similar.expand(message.samples, -1, -1))
            excluded.append(torch.zeros_like(similar, dtype=torch.bool))
        return torch.cat(cosines, 2), torch.cat(excluded, 1)


def _append_neighbours(retriever: Retriever | Listener, batch: Batch, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows (n,) and vectors (n, D) of the whole batch's images, then of their neighbours in `retriever`.

    `vectors` (B, D) are the vectors of the whole batch's images.
    """
    rows = ranks.gather_with_gradient(batch.images)
    if not isinstance(retriever, Retriever) or retriever.neighbours is None:
        return rows, vectors
    neighbours = retriever.neighbours[rows].flatten()
    return torch.cat([rows, neighbours]), torch.cat([vectors, retriever.vectors[neighbours]])


def _is_repeated(rows: Tensor) -> Tensor:
    """Return a mask (n,) bool of the elements of `rows` (n,) that repeat an earlier element."""
    return (rows.unsqueeze(1) == rows).tril(-1).any(1)
