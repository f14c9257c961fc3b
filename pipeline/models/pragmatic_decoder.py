"""Pragmatic decoding (Cohn-Gordon, Goodman and Potts 2018): tokens are chosen to distinguish image and distractors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pipeline.models.decoder import Decoder, RolloutDropout, S, StepwiseDecoder, WrappedDecoder
from pipeline.models.kernels.dispatch import accelerate_decoder
from pipeline.types import Batch


@dataclass(frozen=True)
class DistractorBatches:
    """K distractors of each of B images."""

    batches: Sequence[Batch]  # K batches of B images
    mask: Tensor  # (B, K) bool: True for existing distractors


class PragmaticState(NamedTuple):
    """State of n captions; the image itself precedes its K distractors."""

    decoder: StepwiseDecoder
    states: tuple[object, ...]  # states of the inner decoder, one for each of the 1+K images
    prior: Tensor  # (n, 1+K): log L0(image | tokens so far), up to a constant
    log_probs: Tensor | None  # (n, 1+K, V+1): of the next token by image; None before the first step


class TokenAwareDecoder(WrappedDecoder[S]):
    """Trained speaker `inner` whose logits a subclass changes, without gradients.

    Each word embedding ends with the token's id, so that a step can read the previous token. Hidden states are logits
    (n, V+1).
    """

    requires_grad = False

    def __init__(self, inner: Decoder, alpha: float) -> None:
        """Wrap `inner`; all weights except the word embeddings are shared."""
        spec = {"kind": type(inner).__name__, "arguments": inner.arguments}
        super().__init__(inner.vocabulary, inner.hidden, inner.max_words, 0.0, {"inner": spec, "alpha": alpha})
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


class PragmaticDecoder(TokenAwareDecoder[PragmaticState]):
    """Trained speaker S0, reweighted at each token by a literal listener L0.

        S1(w | tokens, image) ∝ S0(w | tokens, image) · L0(image | tokens, w)^α
        L0(image | tokens, w) ∝ S0(w | tokens, image) · L0(image | tokens)

    The second line is Bayes' rule over the image and its distractors. L0 is uniform before the first token. The
    decoder is that of Cohn-Gordon et al. (2018), with words in place of characters. Its logits are log S0 + α log L0.
    With α = 0, the decoder equals the speaker.
    """

    def __init__(self, inner: Decoder, alpha: float, distractors: Callable[[Batch], DistractorBatches]) -> None:
        """Wrap `inner`; `distractors` returns the distractors of a batch's images."""
        super().__init__(inner, alpha)
        self.distractors = distractors

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> PragmaticState:
        decoder, distractors = accelerate_decoder(self.inner), self.distractors(batch)
        states = [decoder.begin(batch, encoded, drop, width)]
        states += [decoder.begin(each, self.inner.encode_image(each), drop, width) for each in distractors.batches]
        prior = torch.zeros(len(batch), 1 + len(distractors.batches), device=encoded.device)
        prior[:, 1:].masked_fill_(~distractors.mask.to(prior.device), -torch.inf)
        return PragmaticState(decoder, tuple(states), prior.repeat_interleave(width, 0), None)

    def step(self, inputs: Tensor, state: PragmaticState) -> tuple[Tensor, PragmaticState]:
        prior = state.prior
        if state.log_probs is not None:
            index = inputs[:, -1].long().view(-1, 1, 1).expand(-1, prior.shape[1], 1)
            prior = prior + state.log_probs.gather(2, index).squeeze(2)
        steps = [state.decoder.step(inputs[:, :-1], each) for each in state.states]
        log_probs = torch.stack([self.inner.logits(hidden).log_softmax(-1) for hidden, _ in steps], 1)
        states = tuple(states for _, states in steps)
        logits = compute_pragmatic_logits(log_probs, prior, self.alpha)
        return logits, PragmaticState(state.decoder, states, prior, log_probs)

    def select(self, state: PragmaticState, rows: Tensor, same_images: bool = False) -> PragmaticState:
        states = tuple(state.decoder.select(each, rows, same_images) for each in state.states)
        log_probs = None if state.log_probs is None else state.log_probs[rows]
        return PragmaticState(state.decoder, states, state.prior[rows], log_probs)


def compute_pragmatic_logits(log_probs: Tensor, prior: Tensor, alpha: float) -> Tensor:
    """Return log S0 + α log L0 (n, V+1) of the first image, given `log_probs` (n, 1+K, V+1) and `prior` (n, 1+K).

    A token that is impossible for the first image stays impossible. Missing distractors have the prior −∞.
    """
    if alpha == 0:
        return log_probs[:, 0]
    listener = (prior.unsqueeze(2) + log_probs).log_softmax(1)[:, 0]
    return (log_probs[:, 0] + alpha * listener).masked_fill(log_probs[:, 0].isneginf(), -torch.inf)
