"""Straight-through channels: a drawn word forward, the gradient of a distribution backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor

from pipeline.channels.named import Named
from pipeline.channels.words import Choose, draw
from pipeline.numbers import Numbers
from pipeline.types import Batch, Symbol


@dataclass(frozen=True)
class StraightThrough(Named):
    """ST-Multinomial (PSST §5, ρ = 0): a drawn word forward, the gradient of its distribution backward.

    The speaker goes on from the drawn word, without a gradient through it. `ending`: the EOS that ends a caption is
    heard as a constant, without a gradient (published code), or like any word.
    """

    samples: int = 1
    ending: Literal["constant", "soft"] = "constant"
    learns = True
    dropout = True
    relaxes = True
    entropies = False
    named: ClassVar[tuple[str, ...]] = ("samples", "ending")

    @property
    def width(self) -> int:
        return self.samples

    def sample(self, logits: Tensor, numbers: Numbers, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """A word per row (N,), and the noise (N, V+1) that chose it, if any."""
        return draw(logits, numbers.like(logits[:, :1], rows, self.width)), None

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """(M, V+1): what the words' gradient goes to."""
        return logits.softmax(-1)

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """(M, V+1): what a full distribution passes."""
        return self.relax(logits, noise, index)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        numbers = Numbers(batch, rng)

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            index, noise = self.sample(logits, numbers, rows)
            return Symbol(index, through=self.through(index), noise=noise)

        return step

    def through(self, index: Tensor) -> Tensor:
        """(N,) bool: which words pass a gradient, as `ending` has it."""
        return torch.ones_like(index, dtype=torch.bool) if self.ending == "soft" else index != 0


@dataclass(frozen=True)
class Gumbel(StraightThrough):
    """ST-Gumbel (Jang et al. 2017; PSST §4.2): like `StraightThrough`, but the gradient goes to the relaxed sample.

    A word is the argmax of log p + g with Gumbel noise g, so words are drawn from p at any `temperature`; the relaxed
    sample is softmax((log p + g) / temperature).
    """

    temperature: float = 1.0
    named = ("samples", "ending", "temperature")

    def sample(self, logits: Tensor, numbers: Numbers, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        noise = numbers.like(logits, rows, self.width).log_().neg_().log_().neg_()
        return (logits + noise).max(-1).indices, noise

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        assert noise is not None
        return ((logits + noise) / self.temperature).softmax(-1)


@dataclass(frozen=True)
class ReinMax(StraightThrough):
    """ReinMax (Liu et al. 2023): like `StraightThrough`, but of second order.

    The gradient is 2 ∇softmax where its value is (word + softmax(logits / temperature)) / 2, minus ½ ∇softmax(logits):
    at temperature 1 exact for a score that is quadratic in the word; the authors advise 1 or more. A full distribution
    is the softmax, with its own gradient.
    """

    temperature: float = 1.0
    named = ("samples", "ending", "temperature")

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        with torch.no_grad():
            halfway = (logits / self.temperature).softmax(-1)
            halfway = halfway.scatter_add_(1, index.unsqueeze(1), torch.ones_like(halfway[:, :1])).div_(2)
        slope = halfway * (logits - (halfway * logits).sum(-1, keepdim=True))
        return 2 * slope - logits.softmax(-1) / 2

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        return logits.softmax(-1)


@dataclass(frozen=True)
class GumbelRao(StraightThrough):
    """Gumbel-Rao (Paulus et al. 2021): `Gumbel`, its gradient averaged over `k` draws of the noise given the word.

    The mean gradient is that of `Gumbel`, the variance lower. No gradient goes through the noise, though given the
    word it depends on the logits: with one, as §3.2 has it, the mean is another. A full distribution is the mean of
    the relaxed samples. Memory grows with `k`.
    """

    temperature: float = 1.0
    k: int = 10
    named = ("samples", "ending", "temperature", "k")

    def sample(self, logits: Tensor, numbers: Numbers, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """The word (N,) and the relaxed samples (N, k, V+1), whose largest share is the word's."""
        index = draw(logits, numbers.like(logits[:, :1], rows, self.width))
        uniform = numbers.like(logits.unsqueeze(1).expand(-1, self.k, -1), rows, self.width)
        waiting = arrivals(uniform, logits.softmax(-1).unsqueeze(1), index.view(-1, 1, 1).expand(-1, self.k, 1))
        return index, waiting.log_().div_(-self.temperature).softmax(-1)

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        assert noise is not None
        # the samples' mean Jacobian times the logits has its gradient, and nothing as large as `noise` is made
        within = torch.bmm(logits.unsqueeze(1), noise.transpose(1, 2))  # (M, 1, k)
        return (noise.mean(1) * logits - torch.bmm(within, noise).squeeze(1) / self.k) / self.temperature

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        assert noise is not None
        slope = self.relax(logits, noise, index)
        return noise.mean(1) + (slope - slope.detach())


def arrivals(uniform: Tensor, shares: Tensor, first: Tensor) -> Tensor:
    """(…, V+1): when words of `shares` arrive if the words `first` (…, 1) come first; from `uniform`, in its place.

    Times are exponential and not 0; with Gumbel noise, minus the logarithm of a word's time is its perturbed log p.
    """
    waiting = uniform.neg_().log1p_().neg_().clamp_min_(torch.finfo(uniform.dtype).tiny)
    shortest = waiting.gather(-1, first)
    return waiting.div_(shares).add_(shortest).scatter_(-1, first, shortest)
