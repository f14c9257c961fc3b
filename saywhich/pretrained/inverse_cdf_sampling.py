"""Sampling of tokens by uniform numbers, seeded per photo, as a logits processor of transformers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def draw_photo_uniforms(seed: int, contents: Sequence[str], samples: int, tokens: int) -> Tensor:
    """Return uniform numbers (B · K, T) for K samples of up to T tokens of each of B photos.

    A photo's numbers depend on `seed`, the photo's content and T alone, not on the batch, the order of photos or K.
    """
    rows = []
    for content in contents:
        photo_seed = int(hashlib.sha256(f"pretrained {seed} {content}".encode()).hexdigest()[:15], 16)
        rows.append(
            torch.rand(samples, tokens, dtype=torch.float64, generator=torch.Generator("cpu").manual_seed(photo_seed))
        )
    return torch.cat(rows)


class InverseCdfSampling:
    """A logits processor that samples each row's next token by its own uniform number, through the inverse CDF.

    The sampled token's score is 0 and every other score −∞, so that the sampling of transformers takes this token.
    """

    def __init__(self, uniforms: Tensor) -> None:
        self._uniforms, self._step = uniforms, 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        uniform = self._uniforms[:, self._step].to(scores.device).unsqueeze(1)
        self._step += 1
        cumulative = scores.double().softmax(1).cumsum(1)
        thresholds = (uniform * cumulative[:, -1:]).clamp_max(cumulative[:, -1:].nextafter(torch.zeros_like(uniform)))
        tokens = torch.searchsorted(cumulative, thresholds, right=True)  # never a token of probability 0
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens, 0.0)
