"""Rewards of N captions of B photos, from embeddings of length 1; higher is better."""

from __future__ import annotations

import torch
from torch import Tensor


def compute_contrastive_reward(
    captions: Tensor, images: Tensor, owners: Tensor, look_alikes: Tensor, temperature: float
) -> Tensor:
    """Return the contrastive score (N,) in both directions: the sum of two log-ratios times `temperature` τ.

    `captions` (N, H) and `images` (B, H) are embeddings; `owners` (N,) are the captions' photos. Each log-ratio divides
    the pair's exp(cosine / τ) by the sum of exp(cosine / τ) over negatives. The photo's negatives are the captions of
    the batch's other photos. The caption's negatives are the batch's other photos and the look-alikes (B, K, H) of its
    photo. The pair itself is in no denominator. A direction without negatives gives 0. A row of zeros in
    `look_alikes` is no photo.
    """
    pair = _score_own_image(captions, images, owners)
    cosines = captions.double() @ images.double().T  # (N, B)
    is_own_image = owners[:, None] == torch.arange(len(images))
    is_own_caption = (owners[:, None] == owners).T  # (N, N): captions of the same photo
    look_alike_cosines, absent = _score_look_alikes(captions, owners, look_alikes)
    image_cosines = torch.cat([cosines, look_alike_cosines], 1).masked_fill(
        torch.cat([is_own_image, absent], 1), -torch.inf
    )
    caption_cosines = cosines.T[owners].masked_fill(is_own_caption, -torch.inf)
    return _log_ratio(pair, image_cosines, temperature) + _log_ratio(pair, caption_cosines, temperature)


def compute_hard_gallery_reward(
    captions: Tensor, images: Tensor, owners: Tensor, look_alikes: Tensor, temperature: float
) -> Tensor:
    """Return τ times the log-ratio (N,) of a caption's photo to its look-alikes (B, K, H) alone; 0 without them."""
    cosines, absent = _score_look_alikes(captions, owners, look_alikes)
    return _log_ratio(_score_own_image(captions, images, owners), cosines.masked_fill(absent, -torch.inf), temperature)


def _score_own_image(captions: Tensor, images: Tensor, owners: Tensor) -> Tensor:
    return (captions.double() * images[owners].double()).sum(1)


def _score_look_alikes(captions: Tensor, owners: Tensor, look_alikes: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines (N, K) with the look-alikes of each caption's photo, and (N, K) bool: True without a photo."""
    cosines = torch.stack(
        [look_alikes[owner].double() @ caption.double() for owner, caption in zip(owners, captions, strict=True)]
    )
    return cosines, (look_alikes == 0).all(2)[owners]


def _log_ratio(pair: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """Return pair − τ · logsumexp(negatives / τ); 0 where all negatives are −∞."""
    log_sum = temperature * (negatives / temperature).logsumexp(1)
    return torch.where(log_sum.isneginf(), 0.0, pair - log_sum)
