"""Interface of the autoregressive decoders that the unroll (unroll.py) runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import TypeVar  # with defaults, which Python has from 3.13 on

from pipeline.random import BatchRandom
from pipeline.types import Batch

S = TypeVar("S", default=Any)  # state of n captions, which only its decoder uses


@dataclass(frozen=True)
class RolloutDropout:
    """Dropout of one unroll; a caption's random numbers do not depend on the other unfinished captions."""

    probability: float  # 0 in evaluation mode
    batch_random: BatchRandom

    def __call__(self, x: Tensor, rows: Tensor | None = None, width: int = 1) -> Tensor:
        """Apply dropout to `x` (n, …) of the captions `rows` (n,) (None: all), with `width` captions per image."""
        return x * self.mask(x, rows, width) if self.probability else x

    def mask(self, x: Tensor, rows: Tensor | None = None, width: int = 1) -> Tensor:
        """Return the factors of the elements of `x` (n, …): 0 with `probability`, else 1 / (1 − `probability`)."""
        return self.batch_random.keep_mask(x, 1 - self.probability, rows, width)


class StepwiseDecoder(Protocol[S]):
    """Interface of the decoders that the unroll runs; fast forms of decoders implement it, too."""

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> S:
        """Return the state before the first token (`Decoder.begin`)."""

    def step(self, inputs: Tensor, state: S) -> tuple[Tensor, S]:
        """Return hidden states and the next state (`Decoder.step`)."""

    def select(self, state: S, rows: Tensor, same_images: bool = False) -> S:
        """Return the state of selected captions (`Decoder.select`)."""

    def teacher_force(self, batch: Batch, encoded: Tensor, drop: RolloutDropout) -> tuple[Tensor, Tensor]:
        """Return hidden states and positions of the batch's captions (`Decoder.teacher_force`)."""


class Decoder(nn.Module, ABC, Generic[S]):
    """Autoregressive decoder of regions (B, R, D); the unroll adds the loop and the channel.

    `word` embeds V + 2 ids (EOS 0, words, BOS V + 1), and `logit` maps hidden states (n, H) to V + 1 logits. A caption
    has at most `max_words` tokens; a caption of that many words has no EOS. With a null image, one learned vector (H,)
    replaces the encoded regions of images without regions.
    """

    word: nn.Embedding
    region: nn.Linear
    logit: nn.Linear
    requires_grad = True  # whether captions may have a gradient

    def __init__(self, vocabulary: int, hidden: int, max_words: int, dropout: float, arguments: dict[str, Any]) -> None:
        """Store the sizes and the `arguments`, which rebuild the network."""
        super().__init__()
        self.vocabulary, self.hidden, self.max_words, self.dropout = vocabulary, hidden, max_words, dropout
        self.arguments = arguments
        self.null: nn.Parameter | None
        self.register_parameter("null", None)

    @abstractmethod
    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> S:
        """Return the state before the first token of B·width captions, image-major.

        `encoded` is the result of `encode_image`.
        """

    @abstractmethod
    def step(self, inputs: Tensor, state: S) -> tuple[Tensor, S]:
        """Return hidden states (n, H), before dropout, for the input embeddings `inputs` (n, E), and the next state."""

    @abstractmethod
    def select(self, state: S, rows: Tensor, same_images: bool = False) -> S:
        """Return the state of the captions `rows` (m,), in that order.

        With `same_images`, each caption has the same image as the caption that it replaces.
        """

    def encode_image(self, batch: Batch) -> Tensor:
        """Encode the regions, (B, R, H), before dropout; a training step does so once for all its captions."""
        encoded = F.relu(self.region(batch.regions))
        if self.null is None:
            return encoded
        return torch.where(batch.region_mask.any(1).view(-1, 1, 1), encoded, self.null)

    def mask(self, batch: Batch) -> Tensor:
        """Return a mask (B, R) bool of the encoded regions; a null image counts as one region."""
        mask = batch.region_mask
        return mask if self.null is None else torch.cat([mask[:, :1] | ~mask.any(1, keepdim=True), mask[:, 1:]], 1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Compute logits (n, V+1) of hidden states (n, H)."""
        logits: Tensor = self.logit(hidden)
        return logits

    @torch.no_grad()
    def divide_logits(self, temperature: float) -> None:
        """Divide the output layer, and thus all logits, by `temperature`."""
        self.logit.weight.div_(temperature)
        self.logit.bias.div_(temperature)

    def shift_right(self, tokens: Tensor) -> Tensor:
        """Return the input tokens (B, T) for the targets `tokens` (B, T): BOS, then all but the last token."""
        return torch.cat([tokens.new_full((len(tokens), 1), self.vocabulary + 1), tokens[:, :-1]], 1)

    def teacher_force(self, batch: Batch, encoded: Tensor, drop: RolloutDropout) -> tuple[Tensor, Tensor]:
        """Run teacher forcing on the batch's captions (B, T): return hidden states (M, H) and positions (M,) int64.

        The state at position n·T + t predicts token t of caption n. Positions include at least all words and each first
        EOS.
        """
        tokens, state, states = batch.captions, self.begin(batch, encoded, drop, 1), []
        for words in self.shift_right(tokens).unbind(1):
            hidden, state = self.step(self.word(words), state)
            states.append(hidden)
        return torch.stack(states, 1).flatten(0, 1), torch.arange(tokens.numel(), device=tokens.device)

    def add_null_image(self) -> None:
        """Add a null image, initially zeros; an existing null image is kept."""
        if self.null is None:
            self.null = nn.Parameter(torch.zeros_like(self.region.bias))
            self.arguments["null_image"] = True


class WrappedDecoder(Decoder[S]):
    """Decoder around the decoder `inner`, whose word embeddings and output layer it shares."""

    inner: Decoder

    @property
    def word(self) -> nn.Embedding:  # type: ignore[override]
        return self.inner.word

    @property
    def logit(self) -> nn.Linear:  # type: ignore[override]
        return self.inner.logit
