"""The nouns: what a batch holds, what a channel puts across, what a step gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

Losses = dict[str, Tensor]
"""Scalars to be minimised, by name; their sum is what is differentiated."""

Report = dict[str, Tensor]
"""Detached scalars worth logging, by name; they stay on the device until somebody prints them."""


Words = Literal["all", "forced", "drawn"]
"""Of a caption that was begun with forced words and went on with drawn ones, which are meant."""


@dataclass(frozen=True)
class Asked:
    """What is asked in D dialogs of R rounds: N = D·R questions, dialog by dialog. Words end in EOS (0)."""

    questions: Tensor  # (N, Q) int64
    history: Tensor  # (D, R, L) int64: items 0 … r of a dialog are what was said before round r
    options: Tensor  # (N, O) int64: candidates, rows of `answers`
    truth: Tensor  # (N,) int64: which option a human gave
    answers: Tensor  # (U, T) int64: different answers


@dataclass(frozen=True)
class Batch:
    """B images with their features and one human caption each; in dialogs, B questions and a human answer each."""

    images: Tensor  # (B,) int64: rows of the prepared data set
    pooled: Tensor  # (B, P) float: one vector per image, what the listener sees
    regions: Tensor  # (B, R, D) float: grid cells or detected regions, what the speaker attends to
    region_mask: Tensor  # (B, R) bool: which regions exist; of the null image none does
    captions: Tensor  # (B, T) int64: a human caption, w1 … wn EOS EOS …
    epoch: int = 0
    step: int = 0
    first: int = 0  # where these images begin in the whole batch, of which ranks hold parts
    of: int | None = None  # images in the whole batch; None: these are all
    asked: Asked | None = None  # in dialogs

    def __len__(self) -> int:
        return len(self.images)

    @property
    def total(self) -> int:
        """Images in the whole batch."""
        return len(self) if self.of is None else self.of

    @property
    def device(self) -> torch.device:
        return self.images.device

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on `device`; features in half precision travel so and are widened there."""
        asked = None if self.asked is None else replace(self.asked, **_moved(self.asked, device))
        return replace(self, **_moved(self, device), asked=asked)


def _moved(whole: Any, device: torch.device | str) -> dict[str, Any]:
    """The tensors of a dataclass on `device`, by name."""
    held = {f.name: getattr(whole, f.name) for f in fields(whole)}
    moved = {name: x.to(device, non_blocking=True) for name, x in held.items() if isinstance(x, Tensor)}
    return {name: x.float() if x.dtype == torch.float16 else x for name, x in moved.items()}


@dataclass(frozen=True)
class Symbol:
    """What a channel does with the logits of N captions in one time step."""

    index: Tensor  # (N,) int64: the word that was chosen; it decides when the caption ends
    fed: Tensor | None = None  # (N,) int64: what the speaker hears of itself; None: the word
    parent: Tensor | None = None  # (N,) int64: the row each row goes on from; None: its own (beams move)
    through: Tensor | None = (
        None  # (N,) bool: whose words pass a gradient to the channel's distribution; None: nobody's
    )
    full: Tensor | None = None  # (N,) bool: of which the full distribution is heard, not the word; None: of none
    feeds_full: bool = False  # whether the speaker, too, goes on from it there
    noise: Tensor | None = None  # (N, …): what the channel must remember of its draws, such as noise on the logits
    forced: bool = False  # whether these words were forced, and later ones may be drawn


@dataclass(frozen=True)
class Places:
    """M places of N captions of T words where a distribution over words stands for the word."""

    at: Tensor  # (M,) int64: n·T + t
    soft: Tensor  # (M, V+1), differentiable
    there: Tensor | None = None  # (M,) bool: which of them count; None: all

    def detached(self) -> Places:
        return replace(self, soft=self.soft.detach())


Mixing = Callable[[Tensor], Tensor]  # shares (M, V+1) → (M, E)


@dataclass(frozen=True)
class Said:
    """What crossed where it is not just the words: words whose gradient goes to a distribution, and distributions."""

    words: Places | None = None  # heard as the word
    full: Places | None = None  # heard as the distribution

    def heard(self, words: Tensor, mixture: Mixing, straight_through: Mixing) -> Tensor:
        """(N·T, E): `words` (N·T, E), what stands for each word, as it is heard.

        `mixture` makes of a distribution what stands for it; `straight_through` makes zeros that have its gradient.
        """
        if self.words is not None:
            shadow = straight_through(self.words.soft)
            if self.words.there is not None:
                shadow = shadow * self.words.there.unsqueeze(1)
            words = words.index_add(0, self.words.at, shadow)
        if self.full is not None:
            mixed = mixture(self.full.soft)
            if self.full.there is not None:
                mixed = torch.where(self.full.there.unsqueeze(1), mixed, words[self.full.at])
            words = words.index_copy(0, self.full.at, mixed)
        return words

    def detached(self) -> Said:
        """The same with no way back."""
        return Said(*(None if part is None else part.detached() for part in (self.words, self.full)))


@dataclass(frozen=True)
class Message:
    """N captions as they crossed the channel. Rows are image-major: row b·samples + j is sample j of image b."""

    tokens: Tensor  # (N, T) int64: words, EOS where the caption ended and ever after
    mask: Tensor  # (N, T) bool: the words and the EOS that ends them
    images: Tensor  # (N,) int64: position in the batch of the image each caption is of
    samples: int  # captions per image
    log_probs: Tensor | None = None  # (N, T): log p of each drawn or forced word, differentiable, 0 outside the mask
    said: Said | None = None  # what crossed where it is not the words themselves
    entropies: Tensor | None = None  # (N, T): of each word's distribution, in nats, differentiable, 0 outside the mask
    forced: int = 0  # words at the beginning that were forced, where the rest was drawn
    states: Callable[[], Tensor] | None = None  # (N, T, H): the speaker's before each word, detached; made when asked
    logits: Callable[[], Places] | None = None  # of each drawn word, in place of a distribution; made when asked

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, vocabulary: int) -> Tensor:
        """(N, T, V+1): what was heard, a distribution per word; for scores that take captions so, and large."""
        words = one_hot(self.tokens.flatten(), vocabulary + 1)
        if self.said is None:
            return words.view(*self.tokens.shape, -1)
        parts = [part for part in (self.said.words, self.said.full) if part is not None]
        heard = self.said.heard(words.to(parts[0].soft.dtype), lambda soft: soft, lambda soft: soft - soft.detach())
        return heard.view(*self.tokens.shape, -1)

    def share(self, words: Words) -> Tensor:
        """(N, T) bool: the words of the mask that are meant."""
        if words == "all":
            return self.mask
        forced = torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.forced
        return self.mask & (forced if words == "forced" else ~forced)

    def detached(self) -> Message:
        """The same captions with no way back to the speaker."""
        return replace(
            self,
            log_probs=None if self.log_probs is None else self.log_probs.detach(),
            said=None if self.said is None else self.said.detached(),
            entropies=None if self.entropies is None else self.entropies.detach(),
            logits=None,
        )


def caption_mask(tokens: Tensor) -> Tensor:
    """(N, T) bool: True up to and including the first EOS of each row of `tokens` (N, T)."""
    ended = (tokens == 0).long().cumsum(-1)
    return (ended - (tokens == 0).long()) == 0
