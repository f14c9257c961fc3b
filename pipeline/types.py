"""Data types shared by all layers: batches, token choices, messages and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

Losses = dict[str, Tensor]
"""Scalars to be minimised, by name; training differentiates their sum, or each loss with `normalise_gradients`."""

Report = dict[str, Tensor]
"""Detached scalars to be logged, by name; they stay on the device until then."""


Words = Literal["all", "forced", "drawn"]
"""Which tokens of a prefix-forced caption a term uses."""


@dataclass(frozen=True)
class Batch:
    """B images with features and one human caption each."""

    images: Tensor  # (B,) int64: rows of the prepared data set
    pooled: Tensor  # (B, P) float: one vector per image, the listener's input
    regions: Tensor  # (B, R, D) float: grid cells or detected regions that the speaker attends to
    region_mask: Tensor  # (B, R) bool: which regions exist; the null image has none
    captions: Tensor  # (B, T) int64: a human caption, w1 … wn EOS EOS …
    epoch: int = 0
    step: int = 0
    first: int = 0  # index of this rank's first image in the whole batch
    whole_size: int | None = None  # images in the whole batch; None: this part is the whole batch

    def __len__(self) -> int:
        return len(self.images)

    @property
    def total(self) -> int:
        """Return the number of images in the whole batch, over all ranks."""
        return len(self) if self.whole_size is None else self.whole_size

    @property
    def device(self) -> torch.device:
        """Return the device of the tensors."""
        return self.images.device

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on `device`; half-precision features are converted to float32 after the transfer."""
        return replace(self, **move_tensors(self, device))

    def select_images(self, rows: Tensor, captions: Tensor) -> Self:
        """Return the batch of the images at `rows` (N,), which may repeat, with `captions` (N, T).

        All other fields stay as they are, including `first` and `whole_size`.
        """
        return replace(
            self,
            images=self.images[rows],
            pooled=self.pooled[rows],
            regions=self.regions[rows],
            region_mask=self.region_mask[rows],
            captions=captions,
        )


def move_tensors(instance: Any, device: torch.device | str) -> dict[str, Any]:
    """Return the tensors of a dataclass on `device`, by field name; half precision is converted to float32."""
    values = {f.name: getattr(instance, f.name) for f in fields(instance)}
    tensors = {name: x.to(device, non_blocking=True) for name, x in values.items() if isinstance(x, Tensor)}
    return {name: x.float() if x.dtype == torch.float16 else x for name, x in tensors.items()}


@dataclass(frozen=True)
class TokenChoice:
    """Tokens that a channel chooses for N captions in one time step, and their use by speaker and listener."""

    index: Tensor  # (N,) int64: the chosen token; EOS ends the caption
    next_input: Tensor | None = None  # (N,) int64: the speaker's next input token; None: the chosen token
    parent: Tensor | None = None  # (N,) int64: the row that each row continues (beam search reorders); None: its own
    straight_through: Tensor | None = None  # (N,) bool: tokens that pass a gradient to the distribution; None: none
    full: Tensor | None = None  # (N,) bool: rows encoded as the full distribution, not as the token; None: no row
    feeds_relaxed: bool = False  # whether the speaker's next input is the distribution too, in the rows of `full`
    noise: Tensor | None = None  # (N, …): random draws that the channel reuses, such as noise on the logits
    forced: bool = False  # whether these tokens are forced; later ones may be drawn


@dataclass(frozen=True)
class TokenDistributions:
    """Distributions that replace the token at M of the positions of N captions of T tokens."""

    positions: Tensor  # (M,) int64: n·T + t
    probabilities: Tensor  # (M, V+1), differentiable
    valid: Tensor | None = None  # (M,) bool: which positions are used; None: all

    def detach(self) -> TokenDistributions:
        """Return the distributions without a graph."""
        return replace(self, probabilities=self.probabilities.detach())


Mixing = Callable[[Tensor], Tensor]  # distributions (M, V+1) → embeddings (M, E)


@dataclass(frozen=True)
class RelaxedTokens:
    """Relaxed parts of a message: straight-through tokens, and tokens replaced by distributions."""

    straight_through: TokenDistributions | None = None  # encoded as the token; the gradient goes to the distribution
    full: TokenDistributions | None = None  # encoded as the distribution

    def embed(self, embeddings: Tensor, mixture: Mixing, straight_through: Mixing) -> Tensor:
        """Return the embeddings (N·T, E) of the message, given the `embeddings` (N·T, E) of its tokens.

        `mixture` returns the embedding of a distribution. `straight_through` returns zeros with the gradient of this
        embedding.
        """
        if self.straight_through is not None:
            zeros = straight_through(self.straight_through.probabilities)
            if self.straight_through.valid is not None:
                zeros = zeros * self.straight_through.valid.unsqueeze(1)
            embeddings = embeddings.index_add(0, self.straight_through.positions, zeros)
        if self.full is not None:
            mixed = mixture(self.full.probabilities)
            if self.full.valid is not None:
                mixed = torch.where(self.full.valid.unsqueeze(1), mixed, embeddings[self.full.positions])
            embeddings = embeddings.index_copy(0, self.full.positions, mixed)
        return embeddings

    def detach(self) -> RelaxedTokens:
        """Return the relaxed tokens without a graph."""
        return RelaxedTokens(*(None if part is None else part.detach() for part in (self.straight_through, self.full)))


@dataclass(frozen=True)
class Message:
    """N captions that passed a channel. Rows are image-major: row b·samples + j is sample j of image b."""

    tokens: Tensor  # (N, T) int64: tokens; EOS at the end of the caption and at all later steps
    mask: Tensor  # (N, T) bool: the caption's tokens and its first EOS
    images: Tensor  # (N,) int64: index in the batch of each caption's image
    samples: int  # captions per image
    log_probs: Tensor | None = None  # (N, T): log p of each drawn or forced token, differentiable, 0 outside the mask
    relaxed: RelaxedTokens | None = None  # straight-through tokens and distributions
    entropies: Tensor | None = None  # (N, T): entropy per token, in nats, differentiable, 0 outside the mask
    forced: int = 0  # number of tokens that `ForcedPrefix` forces at the beginning; 0 for other channels
    states: Callable[[], Tensor] | None = None  # (N, T, H): the state before each token, detached; computed on call
    logits: Callable[[], TokenDistributions] | None = None  # logits in place of probabilities; computed on call

    def __len__(self) -> int:
        return len(self.tokens)

    def distributions(self, vocabulary: int) -> Tensor:
        """Return one distribution per token, (N, T, V+1) float, for scores that take distributions.

        The tensor is large.
        """
        relaxed = self.relaxed or RelaxedTokens()
        parts = [part for part in (relaxed.straight_through, relaxed.full) if part is not None]
        dtype = parts[0].probabilities.dtype if parts else torch.get_default_dtype()
        one_hot_tokens = one_hot(self.tokens.flatten(), vocabulary + 1).to(dtype)
        mixed = relaxed.embed(one_hot_tokens, lambda soft: soft, lambda soft: soft - soft.detach())
        return mixed.view(*self.tokens.shape, -1)

    def token_mask(self, words: Words) -> Tensor:
        """Return the part of the mask, (N, T) bool, that `words` selects: all, forced or drawn tokens."""
        if words == "all":
            return self.mask
        forced = torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.forced
        return self.mask & (forced if words == "forced" else ~forced)

    def detach(self) -> Message:
        """Return the same captions without a gradient to the speaker, and without `logits`."""
        return replace(
            self,
            log_probs=None if self.log_probs is None else self.log_probs.detach(),
            relaxed=None if self.relaxed is None else self.relaxed.detach(),
            entropies=None if self.entropies is None else self.entropies.detach(),
            logits=None,
        )


def make_caption_mask(tokens: Tensor) -> Tensor:
    """Return a mask (N, T) bool that is True up to and including the first EOS of each row of `tokens` (N, T)."""
    ended = (tokens == 0).long().cumsum(-1)
    return (ended - (tokens == 0).long()) == 0
