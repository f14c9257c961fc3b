"""What speaks word by word: the interface of networks that the one unroll (unroll.py) goes through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.numbers import Numbers
from pipeline.types import Batch

State = Any  # what a decoder remembers of n captions, its own kind of thing


@dataclass(frozen=True)
class Dropout:
    """Dropout of one unroll: a caption's random numbers do not depend on which others are still here."""

    share: float  # 0 where nobody learns
    numbers: Numbers

    def __call__(self, x: Tensor, rows: Tensor | None = None, width: int = 1) -> Tensor:
        """`x` (n, …), the `rows` (n,) of captions, `width` per image; None: all.

        Numbers are compared with the share that is kept: on a CPU, Bernoulli's take four times as long.
        """
        if not self.share:
            return x
        keep = 1 - self.share
        return x * self.numbers.like(x, rows, width).lt_(keep).div_(keep)


class Decoder(nn.Module, ABC):
    """A network that speaks word by word of regions (B, R, D); it knows no channel and no loop.

    It hears V + 2 ids (EOS 0, words, BOS V + 1), embedded by `word`, and says V + 1 with `logit` of hidden states
    (n, H). A caption has at most `max_words` words; one that fills them has no EOS. With a null image it can speak of
    an image that has no regions: one learned vector (H,) is seen in their place.
    """

    word: nn.Embedding
    region: nn.Linear
    logit: nn.Linear
    learns = True  # whether what it says may have a gradient

    def __init__(self, vocabulary: int, hidden: int, max_words: int, dropout: float, arguments: dict[str, Any]) -> None:
        """`arguments`: what builds the same network again."""
        super().__init__()
        self.vocabulary, self.hidden, self.max_words, self.dropout = vocabulary, hidden, max_words, dropout
        self.arguments = arguments
        self.null: nn.Parameter | None
        self.register_parameter("null", None)

    @abstractmethod
    def begin(self, batch: Batch, seen: Tensor, drop: Dropout, width: int) -> State:
        """The state before the first word of B·width captions, image-major; `seen` is what `see` gives."""

    @abstractmethod
    def step(self, heard: Tensor, state: State) -> tuple[Tensor, State]:
        """Hidden states (n, H) after words whose embeddings are `heard` (n, E), before dropout, and the next state."""

    @abstractmethod
    def select(self, state: State, rows: Tensor, same_images: bool = False) -> State:
        """The state of captions `rows` (m,), in that order; `same_images`: of the images of those they replace."""

    def see(self, batch: Batch) -> Tensor:
        """(B, R, H): what the network makes of the regions, before dropout; once for all captions of a step."""
        seen = F.relu(self.region(batch.regions))
        return seen if self.null is None else torch.where(batch.region_mask.any(1).view(-1, 1, 1), seen, self.null)

    def mask(self, batch: Batch) -> Tensor:
        """(B, R) bool: which regions are seen; a null image is one."""
        mask = batch.region_mask
        return mask if self.null is None else torch.cat([mask[:, :1] | ~mask.any(1, keepdim=True), mask[:, 1:]], 1)

    def logits(self, hidden: Tensor) -> Tensor:
        """(n, V+1) of hidden states (n, H)."""
        return self.logit(hidden)

    def before(self, tokens: Tensor) -> Tensor:
        """The words (B, T) that are heard before each of `tokens` (B, T): BOS comes first."""
        return torch.cat([tokens.new_full((len(tokens), 1), self.vocabulary + 1), tokens[:, :-1]], 1)

    def read(self, batch: Batch, seen: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        """Teacher forcing on the batch's captions (B, T): hidden states (M, H) before M of their words, and places
        (M,) int64, n·T + t, which hold at least every word and the EOS that ends a caption.
        """
        tokens, state, found = batch.captions, self.begin(batch, seen, drop, 1), []
        for words in self.before(tokens).unbind(1):
            hidden, state = self.step(self.word(words), state)
            found.append(hidden)
        return torch.stack(found, 1).flatten(0, 1), torch.arange(tokens.numel(), device=tokens.device)

    def add_null_image(self) -> None:
        """Let it have a null image, of zeros as long as nothing is learned; one that it has stays as it is."""
        if self.null is None:
            self.null = nn.Parameter(torch.zeros_like(self.region.bias))
            self.arguments["null_image"] = True
