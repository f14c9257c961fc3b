"""Pragmatic decoding of pretrained captioners with the posterior of speaker or listener (after Ou et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pipeline.evaluation.pragmatic_captions import stack_distractors
from pipeline.models.retrieval_pragmatics import CANDIDATES, compute_retrieval_logits, compute_retrieval_posterior
from saywhich.judging.photo_vectors import CaptionJudge
from saywhich.pragmatic_decoding import SPEAKER, PragmaticGallery
from saywhich.pretrained.pragmatic_generation import generate_pragmatic_candidates
from saywhich.pretrained.pretrained_speaker import (
    DecodedPhoto,
    GenerationSettings,
    LogitsProcessor,
    PretrainedSpeaker,
)


def decode_pragmatically(
    speaker: PretrainedSpeaker,
    listener: CaptionJudge,
    photos: Sequence[DecodedPhoto],
    vectors: Tensor,
    contents: Sequence[str],
    gallery: PragmaticGallery[Sequence[DecodedPhoto]],
    settings: GenerationSettings,
) -> list[list[str]]:
    """Return K candidate captions of each of B photos, decoded pragmatically by the settings of `gallery`.

    `vectors` (B, H) are the listener's embeddings of the photos, and `contents` the digests of its inputs.
    """
    nearest, decoding = gallery.find_nearest(vectors, contents), gallery.decoding
    if decoding.posterior == SPEAKER:
        return generate_pragmatic_candidates(speaker, photos, nearest, gallery, settings)
    images = stack_distractors(gallery.among.vectors, vectors, nearest)
    return generate_retrieval_candidates(speaker, listener, photos, images, settings, decoding.alpha)


def generate_retrieval_candidates(
    speaker: PretrainedSpeaker,
    listener: CaptionJudge,
    photos: Sequence[DecodedPhoto],
    images: Tensor,
    settings: GenerationSettings,
    alpha: float,
    processors: Sequence[LogitsProcessor] = (),
) -> list[list[str]]:
    """Return K candidate captions of each of B photos, whose tokens are weighted by the listener's posterior.

    `settings` and `processors` are as in `speaker.generate_candidates`. `images` (B, 1+D, H) are the listener's
    embeddings of each photo and its D distractors, zeros without a distractor.
    """

    def encode(texts: list[str]) -> Tensor:
        distinct = list(dict.fromkeys(texts))
        row_by_text = {text: row for row, text in enumerate(distinct)}
        return listener.encode_texts(distinct)[[row_by_text[text] for text in texts]]

    def decode(tokens: Tensor) -> list[str]:
        decoded = speaker.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return [" ".join(text.split()) for text in decoded]

    begins_caption = speaker.family.begins_caption
    considered = max(CANDIDATES, 2 * settings.beam)  # a beam search's first step takes 2 · beam tokens of one row
    processor = RetrievalProcessor(
        alpha, images, lambda tokens: encode(decode(tokens)), listener.temperature, considered, begins_caption
    )
    return speaker.generate_candidates(photos, settings, [*processors, processor])


class RetrievalProcessor:
    """A logits processor: log S1 of the `considered` most probable tokens, −∞ for all others.

    S1 is the distribution of `RetrievalPragmaticDecoder`. With α = 0, all tokens keep their log-probabilities.
    """

    def __init__(
        self,
        alpha: float,
        images: Tensor,
        encode: Callable[[Tensor], Tensor],
        temperature: float,
        considered: int = CANDIDATES,
        begins_caption: bool = False,
    ) -> None:
        """Take embeddings `images` (B, 1+D, H), and a function `encode` from tokens (N, T) to embeddings (N, H).

        With `begins_caption`, captions include the prompt, the tokens before the first step; otherwise they omit it.
        """
        self._alpha, self._images, self._encode = alpha, images, encode
        self._temperature, self._considered = temperature, considered
        self._begin: int | None = 0 if begins_caption else None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (n, V) of the next token, given the tokens so far (n, t)."""
        if self._begin is None:
            self._begin = input_ids.shape[1]
        log_probs = scores.float().log_softmax(1)
        best = log_probs.topk(min(self._considered, log_probs.shape[1]), 1).indices
        prefix = input_ids[:, self._begin :].unsqueeze(1).expand(-1, best.shape[1], -1)
        texts = self._encode(torch.cat([prefix, best.unsqueeze(2)], 2).flatten(0, 1)).unflatten(0, best.shape)
        images = self._images.repeat_interleave(len(best) // len(self._images), 0)
        posterior = compute_retrieval_posterior(texts, images.to(texts.device), self._temperature).to(log_probs.device)
        return compute_retrieval_logits(log_probs, best, posterior, self._alpha).log_softmax(1)
