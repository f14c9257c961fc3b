"""The nouns: what a batch holds, what a channel puts across, what a step gives back."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum

import torch
from torch import Tensor

Losses = dict[str, Tensor]
"""Scalars to be minimised, by name; their sum is what is differentiated."""

Report = dict[str, Tensor]
"""Detached scalars worth logging, by name; they stay on the device until somebody prints them."""


class Role(StrEnum):
    """Who can learn."""

    SPEAKER = "speaker"
    LISTENER = "listener"


@dataclass(frozen=True)
class Batch:
    """B images with their features and one human caption each."""

    images: Tensor  # (B,) int64: rows of the prepared data set
    pooled: Tensor  # (B, P) float: one vector an image, what the listener sees
    regions: Tensor  # (B, R, D) float: grid cells or detected regions, what the speaker attends to
    region_mask: Tensor  # (B, R) bool: which regions exist
    captions: Tensor  # (B, T) int64: a human caption, w1 … wn EOS EOS …
    epoch: int = 0
    step: int = 0

    def __len__(self) -> int:
        return len(self.images)

    @property
    def device(self) -> torch.device:
        return self.images.device

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`; features in half precision travel so and are widened there."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("epoch", "step")}
        moved = {name: t.to(device, non_blocking=True) for name, t in tensors.items()}
        return replace(self, **{name: t.float() if t.dtype == torch.float16 else t for name, t in moved.items()})


@dataclass(frozen=True)
class Symbol:
    """What a channel does with the N word distributions of one time step."""

    index: Tensor  # (N,) int64: the word that was chosen; it decides when the caption ends
    said: Tensor | None = None  # (N, V+1): what the listener hears, differentiable; None: the word itself
    fed: Tensor | None = None  # (N,) int64 or (N, V+1): what the speaker hears of itself; None: the word
    parent: Tensor | None = None  # (N,) int64: the row each row goes on from; None: its own (beams move)


@dataclass(frozen=True)
class Message:
    """N captions as they crossed the channel. Rows are image-major: row b·samples + j is sample j of image b."""

    tokens: Tensor  # (N, T) int64: words, EOS where the caption ended and ever after
    mask: Tensor  # (N, T) bool: the words and the EOS that ends them
    images: Tensor  # (N,) int64: position in the batch of the image each caption is of
    samples: int  # captions an image
    log_probs: Tensor | None = None  # (N, T): log p of each chosen word, 0 outside the mask
    said: Tensor | None = None  # (N, T, V+1): what crossed where it is not the words themselves

    def __len__(self) -> int:
        return len(self.tokens)

    def detached(self) -> Message:
        """The same captions with no way back to the speaker."""
        return replace(
            self,
            log_probs=None if self.log_probs is None else self.log_probs.detach(),
            said=None if self.said is None else self.said.detach(),
        )


def caption_mask(tokens: Tensor) -> Tensor:
    """(N, T) bool: True up to and including the first EOS of each row of `tokens` (N, T)."""
    ended = (tokens == 0).long().cumsum(-1)
    return (ended - (tokens == 0).long()) == 0
