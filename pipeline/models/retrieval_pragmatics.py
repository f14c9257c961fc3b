"""Pragmatic decoding with the posterior of a retrieval listener (after Ou, Krojer and Fried 2023)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.models.kernels.dispatch import fast_form
from pipeline.models.pragmatic_decoder import TokenAwareDecoder
from pipeline.types import Batch

CONSIDERED = 10  # most probable tokens whose captions the listener encodes, at least
TEMPERATURE = 0.07  # for cosines of listeners that were trained here


class RetrievalState(NamedTuple):
    """State of n captions: the inner decoder's, and what the listener needs.

    `images` (n, 1+K, D) are its embeddings of the image and its distractors; a row of zeros is no image. `tokens`
    (n, t) are BOS and the tokens so far.
    """

    decoder: Any
    inner: Any
    images: Tensor
    tokens: Tensor


class RetrievalPragmaticDecoder(TokenAwareDecoder):
    """A trained speaker S0 whose tokens a retrieval listener L helps to choose.

    S1(w | tokens, image) ∝ S0(w | tokens, image) · L(image | tokens, w)^α over the most probable tokens of S0, and 0
    for all others. L is the softmax of cosines over the image and its distractors, of the caption that ends with w.
    α = 0 is the speaker itself.
    """

    def __init__(
        self, inner: Decoder, alpha: float, images: Callable[[Batch], Tensor], encode_text: Callable[[Tensor], Tensor]
    ) -> None:
        """Wrap `inner`; `images` embeds a batch, (B, 1+K, D), and `encode_text` tokens (N, T), (N, D)."""
        super().__init__(inner, alpha)
        self.images, self.encode_text = images, encode_text
        self.considered = min(CONSIDERED, inner.vocabulary + 1)

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> RetrievalState:
        decoder = fast_form(self.inner)
        state = decoder.begin(batch, encoded, drop, width)
        images = self.images(batch).to(encoded.device).repeat_interleave(width, 0)
        nothing = torch.zeros(len(images), 0, dtype=torch.int64, device=encoded.device)
        return RetrievalState(decoder, state, images, nothing)

    def step(self, inputs: Tensor, state: RetrievalState) -> tuple[Tensor, RetrievalState]:
        tokens = torch.cat([state.tokens, inputs[:, -1:].long()], 1)  # BOS is the first
        hidden, after = state.decoder.step(inputs[:, :-1], state.inner)
        spoken = self.inner.logits(hidden).log_softmax(-1)
        best = spoken.topk(self.considered, -1).indices
        captions = torch.cat([tokens[:, 1:].unsqueeze(1).expand(-1, best.shape[1], -1), best.unsqueeze(2)], 2)
        texts = self.encode_text(captions.flatten(0, 1)).unflatten(0, best.shape)
        logits = retrieval_logits(spoken, best, retrieval_posterior(texts, state.images, TEMPERATURE), self.alpha)
        return logits, RetrievalState(state.decoder, after, state.images, tokens)

    def select(self, state: RetrievalState, rows: Tensor, same_images: bool = False) -> RetrievalState:
        inner = state.decoder.select(state.inner, rows, same_images)
        return RetrievalState(state.decoder, inner, state.images[rows], state.tokens[rows])


def retrieval_posterior(texts: Tensor, images: Tensor, temperature: float) -> Tensor:
    """Return log L (n, C) of the first of 1+K images, given embeddings of C captions (n, C, D) and images (n, 1+K, D).

    Embeddings have length 1; a row of zeros in `images` is no image.
    """
    scores = torch.einsum("ncd,nkd->nck", texts.float(), images.float()) / temperature
    return scores.masked_fill((images == 0).all(2).unsqueeze(1), -torch.inf).log_softmax(2)[..., 0]


def retrieval_logits(spoken: Tensor, best: Tensor, posterior: Tensor, alpha: float) -> Tensor:
    """Return log S0 + α log L (n, V+1) of the tokens `best` (n, C), whose log L is `posterior` (n, C); −∞ elsewhere.

    With α = 0, `spoken` (n, V+1) is returned whole.
    """
    if alpha == 0:
        return spoken
    return torch.full_like(spoken, -torch.inf).scatter(1, best, spoken.gather(1, best) + alpha * posterior)
