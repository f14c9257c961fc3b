"""Pragmatic decoding of pretrained captioners (Cohn-Gordon et al. 2018), as a logits processor of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pipeline.models.pragmatic_decoder import compute_pragmatic_logits
from saywhich.pragmatic_decoding import PragmaticGallery
from saywhich.pretrained.pretrained_speaker import (
    DecodedPhoto,
    GenerationSettings,
    LogitsProcessor,
    PretrainedSpeaker,
)


def generate_pragmatic_candidates(
    speaker: PretrainedSpeaker,
    photos: Sequence[DecodedPhoto],
    nearest: Tensor,
    gallery: PragmaticGallery[Sequence[DecodedPhoto]],
    settings: GenerationSettings,
    processors: Sequence[LogitsProcessor] = (),
) -> list[list[str]]:
    """Return K candidate captions of each of B photos that distinguish the photo from its distractors.

    `settings` and `processors` are as in `speaker.generate_candidates`. `nearest` (B, D) are the distractors' rows in
    `gallery`, padded with −1. The speaker generates the captions of a photo and of its distractors in one batch.
    A `PragmaticProcessor` gives the photo and its distractors equal scores, so that all continue with the same token.
    The token's likelihood given an image comes from the image's own scores.
    """
    rows = sorted({row for row in nearest.flatten().tolist() if row >= 0})
    photo_by_row = dict(zip(rows, gallery.read(rows), strict=True))
    groups: list[DecodedPhoto] = []
    for photo, distractor_rows in zip(photos, nearest.tolist(), strict=True):
        # a missing distractor is filled with the photo; equal digests mean equal random numbers
        group = (photo, *(photo_by_row.get(row, photo) for row in distractor_rows))
        groups += [replace(member, content=photo.content) for member in group]
    mask = torch.nn.functional.pad(nearest >= 0, (1, 0), value=True)
    processor = PragmaticProcessor(gallery.decoding.alpha, mask.to(speaker.device))
    return speaker.generate_candidates(groups, settings, [*processors, processor])[:: mask.shape[1]]


class PragmaticProcessor:
    """A logits processor: log S1 of the first image of each group, for all rows of the group.

    A group has an image and its D distractors, each with the same number n of rows, its beams or samples. `mask`
    (B, 1+D) bool marks the images that exist. Later processors and the choice of a token must treat equal rows equally.
    """

    def __init__(self, alpha: float, mask: Tensor) -> None:
        self._alpha = alpha
        self._uniform = torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, -torch.inf)
        self._tokens: Tensor | None = None  # (B, n, t): the tokens before the last step
        self._prior = self._log_probs = torch.empty(0)  # at that step: log L0 (B, n, 1+D), and log S0 (B, n, 1+D, V)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores (B · (1+D) · n, V) of the next token, given the tokens so far (B · (1+D) · n, t)."""
        groups, images = self._uniform.shape
        log_probs = scores.float().log_softmax(1).unflatten(0, (groups, images, -1)).transpose(1, 2)
        tokens = input_ids.unflatten(0, (groups, images, -1))[:, 0]
        self._prior = self._compute_log_posterior(tokens)
        self._tokens, self._log_probs = tokens, log_probs
        log_s1 = compute_pragmatic_logits(log_probs.flatten(0, 1), self._prior.flatten(0, 1), self._alpha).log_softmax(
            1
        )
        return log_s1.unflatten(0, (groups, 1, -1)).expand(-1, images, -1, -1).flatten(0, 2)

    def _compute_log_posterior(self, tokens: Tensor) -> Tensor:
        """Return log L0 (B, n, 1+D) of the images given `tokens` (B, n, t), up to a constant."""
        uniform = self._uniform.unsqueeze(1).expand(-1, tokens.shape[1], -1)
        if self._tokens is None:
            return uniform
        # rows with equal tokens have equal states, so that any of them is the row that a beam search continued
        parents = (tokens[:, :, None, :-1] == self._tokens[:, None]).all(3).int().argmax(2)  # (B, n)
        groups = torch.arange(len(tokens), device=tokens.device).unsqueeze(1)
        last = tokens[:, :, -1:].unsqueeze(2).expand(-1, -1, uniform.shape[2], -1)
        log_probs = self._log_probs[groups, parents].gather(3, last).squeeze(3)
        posterior = self._prior[groups, parents] + log_probs
        # a beam search keeps impossible rows, whose captions it never returns
        return torch.where(posterior[..., :1].isneginf(), uniform, posterior)
