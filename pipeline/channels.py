"""Channels: from word distributions to words, and to what is heard of them.

`open` begins B·width captions and gives a function that is called once a time step with their log-probabilities
(N, V+1); rows are image-major. The unroll (models/speaker.py) ends captions, so a channel need not know about EOS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from pipeline.errors import UserError
from pipeline.types import Batch, Symbol

Step = Callable[[int, Tensor], Symbol]


def draw(probabilities: Tensor, rng: Generator) -> Tensor:
    """(N,) word ids drawn from `probabilities` (N, V) by inverting the cumulative sum: one uniform number a row."""
    cumulative = probabilities.detach().cumsum(-1)
    uniform = torch.rand(len(probabilities), 1, generator=rng, device=probabilities.device)
    index = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).squeeze(-1)
    return index.clamp_(max=probabilities.shape[-1] - 1)


@dataclass(frozen=True)
class Multinomial:
    """Words drawn from the speaker's distribution; the listener hears words. `dropout` as while teacher forcing."""

    samples: int = 1
    learns = True
    dropout = True

    @property
    def width(self) -> int:
        return self.samples

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        return lambda t, log_probs: Symbol(draw(log_probs.exp(), rng))


@dataclass(frozen=True)
class Greedy:
    """The likeliest word each time; without dropout unless asked (self-critical.pytorch#6)."""

    dropout: bool = False
    samples = 1
    width = 1
    learns = False

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        return lambda t, log_probs: Symbol(log_probs.argmax(-1))


@dataclass(frozen=True)
class StraightThrough:
    """ST-Multinomial (PSST §5, ρ = 0): a drawn word forward, the gradient of its distribution backward.

    The speaker goes on from the drawn word, without a gradient through it. `ending`: the EOS that ends a caption is
    heard as a constant, without a gradient (published code), or like any word.
    """

    samples: int = 1
    ending: Literal["constant", "soft"] = "constant"
    learns = True
    dropout = True

    @property
    def width(self) -> int:
        return self.samples

    def sample(self, log_probs: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
        """A word a row (N,), and what its gradient goes to and a full distribution passes (N, V+1)."""
        probabilities = log_probs.exp()
        return draw(probabilities, rng), probabilities

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        def step(t: int, log_probs: Tensor) -> Symbol:
            index, soft = self.sample(log_probs, rng)
            return Symbol(index, said=self.end(index, straight_through(index, soft)))

        return step

    def end(self, index: Tensor, said: Tensor) -> Tensor:
        """`said` (N, V) with the rows that end here as `ending` has them."""
        if self.ending == "soft":
            return said
        silence = one_hot(torch.zeros_like(index[:1]), said.shape[-1]).to(said.dtype)
        return torch.where((index == 0).unsqueeze(1), silence, said)


def straight_through(index: Tensor, probabilities: Tensor) -> Tensor:
    """(N, V): the one-hot of `index` (N,) forward, the identity to `probabilities` (N, V) backward."""
    hard = one_hot(index, probabilities.shape[-1]).to(probabilities.dtype)
    return probabilities + (hard - probabilities).detach()


@dataclass(frozen=True)
class Gumbel(StraightThrough):
    """ST-Gumbel (Jang et al. 2017; PSST §4.2): like `StraightThrough`, but the gradient goes to the relaxed sample.

    A word is the argmax of log p + g with Gumbel noise g, so words are drawn from p at any `temperature`; the relaxed
    sample is softmax((log p + g) / temperature).
    """

    temperature: float = 1.0

    def sample(self, log_probs: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
        waiting = torch.empty_like(log_probs).exponential_(generator=rng)
        noise = waiting.clamp_(min=torch.finfo(waiting.dtype).tiny).log_().neg_()
        perturbed = log_probs + noise
        return perturbed.detach().argmax(-1), (perturbed / self.temperature).softmax(-1)


@dataclass(frozen=True)
class PartialSampling:
    """Partial sampling (PSST §5): a share ρ passes as full distributions, the rest through `inner`.

    `mix`: ρ is the share of captions (the paper) or of words (the published code draws a word, its `prob` is 1 − ρ).
    `feed`: a full distribution goes on from itself, gradient included (the paper's deterministic mapper), or along
    the sampled path. A word is drawn for full distributions too: it decides where the caption ends. With
    `Gumbel` inside, the relaxed sample is the full distribution (published code).
    """

    inner: StraightThrough = StraightThrough()
    rho: float = 0.25
    mix: Literal["caption", "token"] = "caption"
    feed: Literal["distribution", "sample"] = "distribution"
    learns = True
    dropout = True

    @property
    def samples(self) -> int:
        return self.inner.samples

    @property
    def width(self) -> int:
        return self.inner.width

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        rows = len(batch) * self.width

        def whole() -> Tensor:
            return torch.rand(rows, 1, generator=rng, device=batch.device) < self.rho

        captions = whole() if self.mix == "caption" else None

        def step(t: int, log_probs: Tensor) -> Symbol:
            index, soft = self.inner.sample(log_probs, rng)
            hard = straight_through(index, soft)
            dense = whole() if captions is None else captions
            said = self.inner.end(index, torch.where(dense, soft, hard))
            fed = torch.where(dense, soft, hard.detach()) if self.feed == "distribution" else None
            return Symbol(index, said=said, fed=fed)

        return step


@dataclass(frozen=True)
class ScheduledSampling:
    """The share of words that the speaker hears of itself while being forced: `by` more after each `every` epochs."""

    start: int = 0
    every: int = 5
    by: float = 0.05
    most: float = 0.25

    def share(self, epoch: int) -> float:
        """The share in `epoch`; 0 up to and including epoch `start` (self-critical.pytorch)."""
        return 0.0 if epoch <= self.start else min(self.most, self.by * ((epoch - self.start) // self.every))


@dataclass(frozen=True)
class Forced:
    """Teacher forcing: the speaker says the batch's human captions, and what it would have said gets no hearing.

    Where only the words are wanted, not their probability (`learns=False`), the speaker is not even asked.
    """

    scheduled: ScheduledSampling | None = None
    learns: bool = True
    samples = 1
    width = 1
    dropout = True

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        share = 0.0 if self.scheduled is None else self.scheduled.share(batch.epoch)

        def step(t: int, log_probs: Tensor) -> Symbol:
            index = batch.captions[:, t]
            if share == 0:
                return Symbol(index)
            own = torch.rand(len(batch), generator=rng, device=batch.device) < share
            return Symbol(index, fed=torch.where(own, draw(log_probs.exp(), rng), index))

        return step


@dataclass(frozen=True)
class Beam:
    """Beam search by the sum of log-probabilities; ended captions stay in the beam and compete with the others."""

    width: int = 2
    samples: int = 1
    learns = False
    dropout = False

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= self.width:
            raise UserError(f"a beam of width {self.width} gives 1 to {self.width} captions, not {self.samples}")

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        images, width, device = len(batch), self.width, batch.device
        first_row = torch.arange(images, device=device).unsqueeze(1) * width
        # all rows of an image begin alike: only the first may have offspring
        total = torch.full((images, width), -torch.inf, device=device)
        total[:, 0] = 0
        ended = torch.zeros(images, width, dtype=torch.bool, device=device)

        def step(t: int, log_probs: Tensor) -> Symbol:
            nonlocal total, ended
            # a row has at most `width` offspring in the beam, so the rest of the vocabulary need not be sorted
            best, word = log_probs.topk(min(width, log_probs.shape[-1]), -1)
            best, word = best.view(images, width, -1), word.view(images, width, -1)
            only_eos = torch.full_like(best, -torch.inf)
            only_eos[..., 0] = 0
            best = torch.where(ended.unsqueeze(-1), only_eos, best)
            word = word.masked_fill(ended.unsqueeze(-1), 0)
            total, chosen = (total.unsqueeze(-1) + best).flatten(1).topk(width, -1)
            parent = chosen // best.shape[-1]
            index = word.flatten(1).gather(1, chosen)
            ended = ended.gather(1, parent) | (index == 0)
            return Symbol(index.flatten(), parent=(first_row + parent).flatten())

        return step
