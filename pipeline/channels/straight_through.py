"""Straight-through channels: a sampled token in the forward pass, a distribution's gradient in the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor

from pipeline.channels.hard import Choose, sample_tokens
from pipeline.channels.streams import NamedStream
from pipeline.random import BatchRandom
from pipeline.types import Batch, TokenChoice


@dataclass(frozen=True)
class StraightThrough(NamedStream):
    """ST-Multinomial (PSST §5, ρ = 0): a sampled token forward, the gradient of its distribution backward.

    The speaker's next input is the sampled token, without a gradient. With `eos_gradient` "constant", the caption's EOS
    passes no gradient (published code); with "soft", it passes one like any token.
    """

    samples: int = 1
    eos_gradient: Literal["constant", "soft"] = "constant"
    requires_grad = True
    dropout = True
    relaxes = True
    entropies = False
    rng_options: ClassVar[tuple[str | tuple[str, str], ...]] = ("samples", ("ending", "eos_gradient"))

    @property
    def width(self) -> int:
        return self.samples

    def sample(self, logits: Tensor, batch_random: BatchRandom, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Sample a token per row (N,); return it with the random draws that `relax` uses again, (N, …) or None."""
        return sample_tokens(logits, batch_random.rand_like(logits[:, :1], rows, self.width)), None

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """Return values (M, V+1) whose gradient is the gradient of the tokens `index` (M,) with respect to `logits`.

        Only `distribution` uses the values themselves.
        """
        return logits.softmax(-1)

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """Return the full distributions (M, V+1) that replace the tokens `index` (M,)."""
        return self.relax(logits, noise, index)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        batch_random = BatchRandom(batch, rng)

        def step(t: int, logits: Tensor, rows: Tensor) -> TokenChoice:
            index, noise = self.sample(logits, batch_random, rows)
            return TokenChoice(index, straight_through=self.straight_through(index), noise=noise)

        return step

    def straight_through(self, index: Tensor) -> Tensor:
        """Return a mask (N,) bool of the tokens that pass a gradient, by `eos_gradient`."""
        return torch.ones_like(index, dtype=torch.bool) if self.eos_gradient == "soft" else index != 0


@dataclass(frozen=True)
class Gumbel(StraightThrough):
    """ST-Gumbel (Jang et al. 2017; PSST §4.2): like `StraightThrough`, but the gradient goes to the relaxed sample.

    A token is the argmax of log p + g with Gumbel noise g, so tokens are drawn from p at any `temperature`. The relaxed
    sample is softmax((log p + g) / temperature).
    """

    temperature: float = 1.0
    rng_options = ("samples", ("ending", "eos_gradient"), "temperature")

    def sample(self, logits: Tensor, batch_random: BatchRandom, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        noise = batch_random.rand_like(logits, rows, self.width).log_().neg_().log_().neg_()
        return (logits + noise).max(-1).indices, noise

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        assert noise is not None
        return ((logits + noise) / self.temperature).softmax(-1)


@dataclass(frozen=True)
class ReinMax(StraightThrough):
    """ReinMax (Liu et al. 2023): like `StraightThrough`, but with a second-order gradient.

    The gradient is 2 ∇softmax, taken where its value is (token + softmax(logits / temperature)) / 2, minus
    ½ ∇softmax(logits). At temperature 1, the expected gradient is exact for a score that is quadratic in the
    token. The authors advise a temperature of 1 or more. A full distribution is the softmax, with its own gradient.
    """

    temperature: float = 1.0
    rng_options = ("samples", ("ending", "eos_gradient"), "temperature")

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        with torch.no_grad():
            midpoint = (logits / self.temperature).softmax(-1)
            midpoint = midpoint.scatter_add_(1, index.unsqueeze(1), torch.ones_like(midpoint[:, :1])).div_(2)
        slope = midpoint * (logits - (midpoint * logits).sum(-1, keepdim=True))
        return 2 * slope - logits.softmax(-1) / 2

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        return logits.softmax(-1)


@dataclass(frozen=True)
class GumbelRao(StraightThrough):
    """Gumbel-Rao (Paulus et al. 2021): `Gumbel` with the gradient averaged over `k` noise draws given the token.

    The expected gradient is that of `Gumbel`, with lower variance. Given the token, the noise depends on the logits,
    but no gradient passes through it. With a gradient through the noise, as in §3.2, the expectation would differ. A
    full distribution is the mean of the relaxed samples. Memory grows with `k`.
    """

    temperature: float = 1.0
    k: int = 10
    rng_options = ("samples", ("ending", "eos_gradient"), "temperature", "k")

    def sample(self, logits: Tensor, batch_random: BatchRandom, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Sample tokens (N,) and relaxed samples (N, k, V+1), whose largest element is at the token."""
        index = sample_tokens(logits, batch_random.rand_like(logits[:, :1], rows, self.width))
        uniform = batch_random.rand_like(logits.unsqueeze(1).expand(-1, self.k, -1), rows, self.width)
        times = sample_arrival_times(
            uniform, logits.softmax(-1).unsqueeze(1), index.view(-1, 1, 1).expand(-1, self.k, 1)
        )
        return index, times.log_().div_(-self.temperature).softmax(-1)

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        assert noise is not None
        # mean Jacobian of the samples times the logits: the same gradient without another tensor as large as `noise`
        products = torch.bmm(logits.unsqueeze(1), noise.transpose(1, 2))  # (M, 1, k)
        return (noise.mean(1) * logits - torch.bmm(products, noise).squeeze(1) / self.k) / self.temperature

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        assert noise is not None
        slope = self.relax(logits, noise, index)
        return noise.mean(1) + (slope - slope.detach())


def sample_arrival_times(uniform: Tensor, rates: Tensor, first: Tensor) -> Tensor:
    """Sample exponential arrival times (…, V+1), given that the tokens `first` (…, 1) arrive first.

    The `rates` p (…, V+1) sum to 1. Times are computed from `uniform`, in place, and are positive. Minus the logarithm
    of a time is a log p perturbed with Gumbel noise.
    """
    times = uniform.neg_().log1p_().neg_().clamp_min_(torch.finfo(uniform.dtype).tiny)
    shortest = times.gather(-1, first)
    return times.div_(rates).add_(shortest).scatter_(-1, first, shortest)
