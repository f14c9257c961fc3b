"""A listener as a judge: does it find the image among all images, and the caption among all captions?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.metrics.retrieval import random_distractors, recall, search, similar_distractors
from pipeline.models.listener import Listener
from pipeline.types import Message, caption_mask

AT_ONCE = 1024
SHOWN = 5  # images that a judge puts first, kept for looking at
DISTRACTORS_SEED = 0  # the same galleries for all models


@dataclass(frozen=True)
class Verdict:
    """How a judge ranks N captions of M images: `by_caption` (N,) 1 is best, and recalls both ways.

    `retrieved` (N, 5): rows of the gallery that it puts first. `galleries`: recalls from text to image among fewer.
    """

    by_caption: Tensor
    retrieved: Tensor
    text_to_image: dict[str, float]
    image_to_text: dict[str, float]
    galleries: dict[str, dict[str, float]]

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


@torch.no_grad()
def judge(
    listener: Listener,
    tokens: Tensor,
    images: Tensor,
    pooled: Tensor,
    device: torch.device,
    distractors: Mapping[str, Tensor] | None = None,
) -> Verdict:
    """Rank captions `tokens` (N, T), caption i of image `images[i]`, against the gallery `pooled` (M, P).

    Every image has a caption. Of an image's captions the one that the image ranks best counts (PSST's and VSE++'s
    protocol for human captions). `distractors`: smaller galleries, as `galleries` gives them.
    """
    listener = listener.to(device).eval()
    heard, seen = hear(listener, tokens, device), see(listener, pooled, device)
    among = {name: rows.to(device) for name, rows in (distractors or {}).items()}
    found = search(heard, seen, images.to(device), among=among, shown=SHOWN)
    return Verdict(
        found.by_caption.cpu(),
        found.first.cpu(),
        recall(found.by_caption),
        recall(found.by_image),
        {name: recall(ranks) for name, ranks in found.among.items()},
    )


@torch.no_grad()
def hear(listener: Listener, tokens: Tensor, device: torch.device) -> Tensor:
    """(N, H): captions `tokens` (N, T) as the listener, on `device`, hears them; equal ones are heard once.

    So they tie: heard at two places of a batch, or by another number of threads, they would differ in the last digit.
    """
    distinct, which = torch.unique(tokens, dim=0, return_inverse=True)
    return torch.cat([_hear(listener, part.to(device)) for part in distinct.split(AT_ONCE)])[which.to(device)]


@torch.no_grad()
def see(listener: Listener, pooled: Tensor, device: torch.device) -> Tensor:
    """(M, H): images `pooled` (M, P) as the listener, on `device`, sees them."""
    return torch.cat([listener.see(part.to(device)) for part in pooled.split(AT_ONCE)])


def _hear(listener: Listener, tokens: Tensor) -> Tensor:
    nobody = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
    return listener.hear(Message(tokens, caption_mask(tokens), nobody, samples=1))
