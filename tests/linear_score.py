"""A score that is linear in every word, for exact gradients without a listener."""

import torch
from torch import Tensor

from pipeline.types import Batch, Message


class LinearScore:
    """A score with a value for every caption of every image: linear in each word, without a listener.

    The score of a caption does not depend on the other captions.
    """

    differentiable = True

    def __init__(self, images: int, vocabulary: int, max_words: int, seed: int = 1, level: float = 0.0) -> None:
        """Draw normal values with standard deviation 2 around `level`."""
        shape = (images, *[vocabulary + 1] * max_words)
        generator = torch.Generator().manual_seed(seed)
        self.table = level + 2 * torch.randn(shape, generator=generator, dtype=torch.float64)

    def __call__(self, message: Message, batch: Batch) -> Tensor:
        distributions = message.distributions(self.table.shape[1] - 1).to(self.table.dtype)  # (N, T', V+1)
        value = self.table[message.images]
        for t in range(self.table.dim() - 1):
            value = (
                torch.einsum("nv...,nv->n...", value, distributions[:, t])
                if t < distributions.shape[1]
                else value[:, 0]
            )
        return value
