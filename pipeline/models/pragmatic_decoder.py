"""Pragmatic decoding (Cohn-Gordon, Goodman and Potts 2018): each token is chosen to tell the image from distractors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipeline.models.decoder import Decoder, RolloutDropout, WrappedDecoder
from pipeline.models.kernels.dispatch import fast_form
from pipeline.types import Batch


@dataclass(frozen=True)
class DistractorBatches:
    """K distractors of each of B images: as K batches of B images, and which of them exist, (B, K) bool."""

    batches: Sequence[Batch]
    exist: Tensor


class PragmaticState(NamedTuple):
    """State of n captions: the inner decoder's of each image, and what the literal listener knows.

    `prior` (n, 1+K) is log L0(image | tokens so far), up to a constant. `spoken` (n, 1+K, V+1) are log-probabilities of
    the next token by image; None before the first step. The image itself is first, distractors follow.
    """

    decoder: Any
    images: tuple[Any, ...]
    prior: Tensor
    spoken: Tensor | None


class TokenAwareDecoder(WrappedDecoder):
    """A trained speaker `inner` with a subclass's choice of tokens, without gradients.

    A token's id is appended to its word embedding, so that a step knows which token was chosen. Hidden states are
    logits (n, V+1).
    """

    requires_grad = False

    def __init__(self, inner: Decoder, alpha: float) -> None:
        """Wrap `inner`; all weights but the word embeddings are shared."""
        made = {"kind": type(inner).__name__, "arguments": inner.arguments}
        super().__init__(inner.vocabulary, inner.hidden, inner.max_words, 0.0, {"inner": made, "alpha": alpha})
        self.inner, self.alpha = inner, alpha
        rows = inner.word.weight.detach()
        ids = torch.arange(len(rows), dtype=rows.dtype, device=rows.device).unsqueeze(1)
        assert torch.equal(ids.long().flatten(), torch.arange(len(rows), device=rows.device)), "ids need float32"
        self.words_with_ids: nn.Embedding = nn.Embedding.from_pretrained(torch.cat([rows, ids], 1))
        self.eval()

    @property
    def word(self) -> nn.Embedding:  # type: ignore[override]
        words: nn.Embedding = self.words_with_ids
        return words

    def encode_image(self, batch: Batch) -> Tensor:
        return self.inner.encode_image(batch)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden


class PragmaticDecoder(TokenAwareDecoder):
    """A trained speaker S0 whose tokens a literal listener L0 helps to choose.

    S1(w | tokens, image) ∝ S0(w | tokens, image) · L0(image | tokens, w)^α, where by Bayes' rule
    L0(image | tokens, w) ∝ S0(w | tokens, image) · L0(image | tokens) over the image and its distractors, and L0 is
    uniform before the first token (Cohn-Gordon et al. 2018, with words in place of characters). α = 0 is the speaker
    itself. Its logits are log S0 + α log L0.
    """

    def __init__(self, inner: Decoder, alpha: float, distractors: Callable[[Batch], DistractorBatches]) -> None:
        """Wrap `inner`; `distractors` gives those of each image of a batch."""
        super().__init__(inner, alpha)
        self.distractors = distractors

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> PragmaticState:
        decoder, others = fast_form(self.inner), self.distractors(batch)
        states = [decoder.begin(batch, encoded, drop, width)]
        states += [decoder.begin(each, self.inner.encode_image(each), drop, width) for each in others.batches]
        prior = torch.zeros(len(batch), 1 + len(others.batches), device=encoded.device)
        prior[:, 1:].masked_fill_(~others.exist.to(prior.device), -torch.inf)
        return PragmaticState(decoder, tuple(states), prior.repeat_interleave(width, 0), None)

    def step(self, inputs: Tensor, state: PragmaticState) -> tuple[Tensor, PragmaticState]:
        prior = state.prior
        if state.spoken is not None:
            chosen = inputs[:, -1].long().view(-1, 1, 1).expand(-1, prior.shape[1], 1)
            prior = prior + state.spoken.gather(2, chosen).squeeze(2)
        steps = [state.decoder.step(inputs[:, :-1], each) for each in state.images]
        spoken = torch.stack([self.inner.logits(hidden).log_softmax(-1) for hidden, _ in steps], 1)
        after = tuple(after for _, after in steps)
        logits = pragmatic_logits(spoken, prior, self.alpha)
        return logits, PragmaticState(state.decoder, after, prior, spoken)

    def select(self, state: PragmaticState, rows: Tensor, same_images: bool = False) -> PragmaticState:
        images = tuple(state.decoder.select(each, rows, same_images) for each in state.images)
        spoken = None if state.spoken is None else state.spoken[rows]
        return PragmaticState(state.decoder, images, state.prior[rows], spoken)


def pragmatic_logits(spoken: Tensor, prior: Tensor, alpha: float) -> Tensor:
    """Return log S0 + α log L0 (n, V+1) of the first image, given `spoken` (n, 1+K, V+1) and `prior` (n, 1+K).

    Tokens that are impossible for the first image are impossible; all other images may be impossible, too.
    """
    if alpha == 0:
        return spoken[:, 0]
    listener = (prior.unsqueeze(2) + spoken).log_softmax(1)[:, 0]
    return (spoken[:, 0] + alpha * listener).masked_fill(spoken[:, 0].isneginf(), -torch.inf)
