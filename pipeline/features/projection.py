"""Transforms fitted on the training split: principal components of regions, and standardisation of vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.errors import UserError


@dataclass(frozen=True)
class Projection:
    """Projection x ↦ components · (x − mean) onto the directions of largest variance, not whitened."""

    mean: Tensor  # (D,) float32
    components: Tensor  # (k, D) float32, orthonormal rows, largest variance first
    explained: float  # share of the variance that remains, 0 … 1; 1 for vectors without variance

    @classmethod
    def fit(cls, parts: Iterable[Tensor], size: int) -> Projection:
        """Fit the `size` first principal components of vectors, which come in parts (n, D).

        Products of vectors are summed in float32 within a part, and in float64 over parts. The sign of a component
        makes its entry of largest absolute value positive. Raises UserError where `size` exceeds D.
        """
        count, origin, total, products = 0, torch.zeros(0), torch.zeros(0), torch.zeros(0)
        for part in parts:
            if count == 0:
                origin = part.mean(0)  # close to the mean, to avoid cancellation
                total = torch.zeros(part.shape[1], dtype=torch.float64)
                products = torch.zeros(part.shape[1], part.shape[1], dtype=torch.float64)
            centred = part - origin
            count += len(part)
            total += centred.sum(0, dtype=torch.float64)
            products += (centred.T @ centred).double()
        if size > len(origin):
            raise UserError(
                f"features.pca_dim: expected at most {len(origin)}, the size of a region's vector, got {size}; lower it"
            )
        mean = total / count
        values, vectors = torch.linalg.eigh(products / count - torch.outer(mean, mean))
        components = vectors.T.flip(0)[:size]
        largest = components.gather(1, components.abs().argmax(1, keepdim=True))
        variance = float(values.sum())
        # for equal vectors the variance is 0, or a rounding error of either sign
        explained = min(float(values.flip(0)[:size].sum()) / variance, 1.0) if variance > 0 else 1.0
        return cls((mean + origin).float(), (components * largest.sign()).float().contiguous(), explained)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Project vectors (…, D) to (…, k)."""
        return (vectors - self.mean) @ self.components.T


@dataclass(frozen=True)
class Standardisation:
    """Standardisation x ↦ (x − mean) / deviation of each dimension."""

    mean: Tensor  # (P,) float32
    deviation: Tensor  # (P,) float32, 1 for a constant dimension

    @classmethod
    def fit(cls, parts: Iterable[Tensor]) -> Standardisation:
        """Fit mean and standard deviation of vectors in parts (n, P), in float64.

        A dimension that is constant in float16 vectors, as the store has, becomes 0.
        """
        count, total, squares = 0, torch.zeros(()), torch.zeros(())
        for part in parts:
            count, wide = count + len(part), part.double()
            total, squares = total + wide.sum(0), squares + wide.square().sum(0)
        mean = total / count
        deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
        return cls(mean.float(), torch.where(deviation > 0, deviation, 1).float())

    def __call__(self, vectors: Tensor) -> Tensor:
        """Standardise vectors (…, P)."""
        return (vectors - self.mean) / self.deviation


@dataclass(frozen=True)
class FittedTransforms:
    """Transforms fitted to a network's features; None leaves vectors or regions unchanged.

    The last `unreduced` columns of regions, which encode a region's time, are not projected.
    """

    projection: Projection | None = None
    scale: Standardisation | None = None
    unreduced: int = 0

    def __call__(self, pooled: Tensor, regions: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Transform vectors (B, P) and regions (B, R, D) to (B, P) and (B, R, k + `unreduced`).

        Projected regions are 0 beyond `count` (B,).
        """
        if self.scale is not None:
            pooled = self.scale(pooled)
        if self.projection is not None:
            exist = torch.arange(regions.shape[1]) < count.unsqueeze(1)
            size = regions.shape[2] - self.unreduced
            regions = torch.cat([self.projection(regions[..., :size]), regions[..., size:]], 2) * exist.unsqueeze(2)
        return pooled, regions
