"""Pragmatic decoding with the posterior of a retrieval listener (after Ou, Krojer and Fried 2023)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.models.decoder import Decoder, RolloutDropout, StepwiseDecoder
from pipeline.models.kernels.dispatch import accelerate_decoder
from pipeline.models.pragmatic_decoder import TokenAwareDecoder
from pipeline.types import Batch

CANDIDATES = 10  # number of most probable tokens, at each step, whose captions the listener encodes
TEMPERATURE = 0.07  # divides the cosines of listeners that this project trains


class RetrievalState(NamedTuple):
    """State of n captions."""

    decoder: StepwiseDecoder
    inner: object  # state of the inner decoder
    images: Tensor  # (n, 1+K, D): the listener's embeddings of the image and its distractors; zeros: no image
    tokens: Tensor  # (n, t): BOS and the tokens so far


class RetrievalPragmaticDecoder(TokenAwareDecoder[RetrievalState]):
    """Trained speaker S0, reweighted at each token by a retrieval listener L.

    S1(w | tokens, image) ∝ S0(w | tokens, image) · L(image | tokens, w)^α over the CANDIDATES most probable tokens of
    S0. All other tokens have probability 0. L is the softmax, over the image and its distractors, of their cosines with
    the caption that ends with w, divided by `temperature`. With α = 0, the decoder equals the speaker.
    """

    def __init__(
        self,
        inner: Decoder,
        alpha: float,
        images: Callable[[Batch], Tensor],
        encode_text: Callable[[Tensor], Tensor],
        temperature: float = TEMPERATURE,
    ) -> None:
        """Wrap `inner`; `images` encodes a batch as (B, 1+K, D), and `encode_text` encodes tokens (N, T) as (N, D).

        `temperature` divides the cosines of this listener.
        """
        super().__init__(inner, alpha)
        self.images, self.encode_text, self.temperature = images, encode_text, temperature
        self.candidates = min(CANDIDATES, inner.vocabulary + 1)

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> RetrievalState:
        decoder = accelerate_decoder(self.inner)
        state = decoder.begin(batch, encoded, drop, width)
        images = self.images(batch).to(encoded.device).repeat_interleave(width, 0)
        no_tokens = torch.zeros(len(images), 0, dtype=torch.int64, device=encoded.device)
        return RetrievalState(decoder, state, images, no_tokens)

    def step(self, inputs: Tensor, state: RetrievalState) -> tuple[Tensor, RetrievalState]:
        tokens = torch.cat([state.tokens, inputs[:, -1:].long()], 1)  # BOS is the first
        hidden, inner = state.decoder.step(inputs[:, :-1], state.inner)
        log_probs = self.inner.logits(hidden).log_softmax(-1)
        best = log_probs.topk(self.candidates, -1).indices
        captions = torch.cat([tokens[:, 1:].unsqueeze(1).expand(-1, best.shape[1], -1), best.unsqueeze(2)], 2)
        texts = self.encode_text(captions.flatten(0, 1)).unflatten(0, best.shape)
        logits = compute_retrieval_logits(
            log_probs, best, compute_retrieval_posterior(texts, state.images, self.temperature), self.alpha
        )
        return logits, RetrievalState(state.decoder, inner, state.images, tokens)

    def select(self, state: RetrievalState, rows: Tensor, same_images: bool = False) -> RetrievalState:
        inner = state.decoder.select(state.inner, rows, same_images)
        return RetrievalState(state.decoder, inner, state.images[rows], state.tokens[rows])


def compute_retrieval_posterior(texts: Tensor, images: Tensor, temperature: float) -> Tensor:
    """Return log L (n, C) of the first image from embeddings of C captions (n, C, D) and of images (n, 1+K, D).

    Embeddings have length 1; a row of zeros in `images` is a missing image.
    """
    scores = torch.einsum("ncd,nkd->nck", texts.float(), images.float()) / temperature
    return scores.masked_fill((images == 0).all(2).unsqueeze(1), -torch.inf).log_softmax(2)[..., 0]


def compute_retrieval_logits(log_probs: Tensor, best: Tensor, posterior: Tensor, alpha: float) -> Tensor:
    """Return log S0 + α log L (n, V+1) of the tokens `best` (n, C), whose log L is `posterior` (n, C); −∞ elsewhere.

    With α = 0, `log_probs` (n, V+1) is returned unchanged.
    """
    if alpha == 0:
        return log_probs
    return torch.full_like(log_probs, -torch.inf).scatter(1, best, log_probs.gather(1, best) + alpha * posterior)
