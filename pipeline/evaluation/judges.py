"""Judges: does one find the image among all images, and the caption among all captions?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.metrics.retrieval import random_distractors, recall, recall_among, search, similar_distractors
from pipeline.models.dual_encoder import DualEncoder
from pipeline.models.listener import Listener
from pipeline.types import Message, caption_mask
from pipeline.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pipeline.data.feature_store import FeatureStore

AT_ONCE = 1024
SHOWN = 5  # images that a judge puts first, kept for looking at
DISTRACTORS_SEED = 0  # the same galleries for all models


@dataclass(frozen=True)
class Verdict:
    """How a judge ranks N captions of M images: `by_caption` (N,) 1 is best, and recalls both ways.

    `retrieved` (N, 5): rows of the gallery that it puts first. `galleries`: recalls from text to image among fewer, of
    the ranks `among` (N,) them, 0 where there is no other image.
    """

    by_caption: Tensor
    retrieved: Tensor
    text_to_image: dict[str, float]
    image_to_text: dict[str, float]
    galleries: dict[str, dict[str, float]]
    among: dict[str, Tensor]

    def recalls(self) -> dict[str, dict[str, float]]:
        return {"text_to_image": self.text_to_image, "image_to_text": self.image_to_text}


def galleries(pooled: Tensor) -> dict[str, Tensor]:
    """Distractors (M, K) of each image of `pooled` (M, P), by the gallery's name, left out where M is too small.

    1000 and random100: 999 and 99 drawn at random; similar100: the 99 nearest to the image in feature space.
    """
    images = len(pooled)
    found = {}
    if images > 1000:
        found["1000"] = random_distractors(images, 999, DISTRACTORS_SEED)
    if images > 100:
        found["random100"] = random_distractors(images, 99, DISTRACTORS_SEED)
        found["similar100"] = similar_distractors(pooled, 99)
    return found


@dataclass(frozen=True)
class Spoken:
    """N captions as the speaker's ids (N, T) and as text: a judge hears one or the other."""

    tokens: Tensor
    texts: Sequence[str]


def spoken(texts: Sequence[str], vocabulary: Vocabulary, max_words: int) -> Spoken:
    """Captions that stand as texts, as ids, too, of which there are `max_words` at most."""
    tokens = torch.zeros(len(texts), max_words, dtype=torch.int64)
    for row, text in zip(tokens, texts, strict=True):
        words = vocabulary.encode(text.split())[:max_words]
        row[: len(words)] = torch.tensor(words)
    return Spoken(tokens, texts)


class Judge(Protocol):
    """Who looks for the image from the caption, and for the caption from the image, with eyes and words of its own."""

    def vectors(self, said: Spoken, rows: Tensor) -> tuple[Tensor, Tensor]:
        """(N, D) of the captions, equal ones alike to the bit, and (M, D) of the images `rows` (M,) of the prepared
        data set; their inner products say how well each caption fits each image."""


@dataclass(frozen=True)
class ListenerJudge:
    """A listener, which hears ids; `pooled` gives the vectors (M, P) of images that it was trained on.

    With those of their mirror images, `mirrored`, an image lies between both.
    """

    listener: Listener
    pooled: Callable[[Tensor], Tensor]
    device: torch.device
    mirrored: Callable[[Tensor], Tensor] | None = None

    def vectors(self, said: Spoken, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.hear(said), self.look(rows)

    @torch.no_grad()
    def hear(self, said: Spoken) -> Tensor:
        """Equal captions are heard once: at two places of a batch, or by another number of threads, they would differ
        in the last digit, and not tie."""
        listener = self.listener.to(self.device).eval()
        distinct, which = torch.unique(said.tokens, dim=0, return_inverse=True)
        heard = [_hear(listener, part.to(self.device)) for part in distinct.split(AT_ONCE)]
        return torch.cat(heard)[which.to(self.device)]

    @torch.no_grad()
    def look(self, rows: Tensor) -> Tensor:
        listener = self.listener.to(self.device).eval()
        views = [self.pooled] if self.mirrored is None else [self.pooled, self.mirrored]
        seen = [torch.cat([listener.see(view(part).to(self.device)) for part in rows.split(AT_ONCE)]) for view in views]
        return seen[0] if len(seen) == 1 else F.normalize(seen[0] + seen[1], dim=-1)


@dataclass(frozen=True)
class TextJudge:
    """A dual encoder, which hears text; `pooled` gives the vectors (M, D) of images by its other tower."""

    encoder: DualEncoder
    pooled: Callable[[Tensor], Tensor]
    device: torch.device

    def vectors(self, said: Spoken, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.hear(said), self.look(rows)

    @torch.no_grad()
    def hear(self, said: Spoken) -> Tensor:
        encoder, distinct = self.encoder.to(self.device).eval(), sorted(set(said.texts))
        parts = [distinct[first : first + AT_ONCE] for first in range(0, len(distinct), AT_ONCE)]
        heard, place = torch.cat([encoder.hear(part) for part in parts]), {text: i for i, text in enumerate(distinct)}
        return heard[torch.tensor([place[text] for text in said.texts], device=self.device)]

    @torch.no_grad()
    def look(self, rows: Tensor) -> Tensor:
        return self.encoder.see(self.pooled(rows).to(self.device))


def judge_of(agent: Listener | DualEncoder, store: FeatureStore, device: torch.device) -> ListenerJudge | TextJudge:
    """The judge that `agent` is, which sees the images of `store`."""

    def pooled(rows: Tensor) -> Tensor:
        return torch.from_numpy(store.pooled(rows.numpy()))

    if isinstance(agent, DualEncoder):
        return TextJudge(agent, pooled, device)
    return ListenerJudge(agent, pooled, device, (lambda rows: pooled(rows + len(store))) if store.mirrored else None)


def verdict(
    judge: Judge,
    said: Spoken,
    images: Tensor,
    gallery: Tensor,
    distractors: Mapping[str, Tensor] | None = None,
) -> Verdict:
    """Rank captions, caption i of the image at place `images[i]` of the `gallery` (M,) of images, against all of it.

    Every image has a caption. Of an image's captions the one that the image ranks best counts (PSST's and VSE++'s
    protocol for human captions). `distractors`: smaller galleries, (M, K) the others of each image, −1 where it has
    fewer.
    """
    heard, seen = judge.vectors(said, gallery)
    among = {name: rows.to(heard.device) for name, rows in (distractors or {}).items()}
    found = search(heard, seen, images.to(heard.device), among=among, shown=SHOWN)
    sizes = {name: 1 + (rows >= 0).sum(1)[images] for name, rows in (distractors or {}).items()}
    ranks = {name: each.cpu() for name, each in found.among.items()}
    return Verdict(
        found.by_caption.cpu(),
        found.first.cpu(),
        recall(found.by_caption),
        recall(found.by_image),
        {name: recall_among(ranks[name], sizes[name]) for name in ranks},
        {name: each.where(sizes[name] > 1, 0) for name, each in ranks.items()},
    )


def _hear(listener: Listener, tokens: Tensor) -> Tensor:
    nobody = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
    return listener.hear(Message(tokens, caption_mask(tokens), nobody, samples=1))
