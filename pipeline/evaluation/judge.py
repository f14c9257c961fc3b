"""A listener as a judge: does it find the image among all images, and the caption among all captions?"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.metrics.retrieval import best_of, ranks, recall
from pipeline.models.listener import Listener
from pipeline.types import Message, caption_mask

AT_ONCE = 1024


@dataclass(frozen=True)
class Verdict:
    """How a judge ranks N captions of M images: `by_caption` (N,) 1 is best, and recalls both ways."""

    by_caption: Tensor
    text_to_image: dict[str, float]
    image_to_text: dict[str, float]

    def recalls(self) -> dict[str, dict[str, float]]:
        return {"text_to_image": self.text_to_image, "image_to_text": self.image_to_text}


@torch.no_grad()
def judge(listener: Listener, tokens: Tensor, images: Tensor, pooled: Tensor, device: torch.device) -> Verdict:
    """Rank captions `tokens` (N, T), caption i of image `images[i]`, against the gallery `pooled` (M, P).

    Every image has a caption. Of an image's captions the one that the image ranks best counts (PSST's and VSE++'s
    protocol for human captions).
    """
    listener = listener.to(device).eval()
    heard = torch.cat([_hear(listener, part.to(device)) for part in tokens.split(AT_ONCE)])
    seen = torch.cat([listener.see(part.to(device)) for part in pooled.split(AT_ONCE)])
    images = images.to(device)
    by_caption = ranks(heard, seen, images)
    # an image's own captions do not stand in each other's way
    of_captions = ranks(seen[images], heard, torch.arange(len(heard), device=device), owners=images)
    by_image = best_of(of_captions, images, len(seen))
    return Verdict(by_caption.cpu(), recall(by_caption), recall(by_image))


def _hear(listener: Listener, tokens: Tensor) -> Tensor:
    nobody = torch.zeros(len(tokens), dtype=torch.int64, device=tokens.device)
    return listener.hear(Message(tokens, caption_mask(tokens), nobody, samples=1))
