"""Channels: from the logits of words to words, and to what is heard of them.

`open` begins B·width captions and gives a function that is called once a time step with the logits (N, V+1) of the
captions that go on; rows are image-major. The unroll (models/speaker.py) ends captions, so a channel need not know
about EOS, and makes the gradients, so a channel need not know about graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Generator, Tensor

from pipeline.errors import UserError
from pipeline.numbers import Numbers
from pipeline.types import Batch, Symbol

Step = Callable[[int, Tensor, Tensor], Symbol]


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """(N,) word ids by the distributions of `logits` (N, V): their cumulative sums inverted at `uniform` (N, 1)."""
    cumulative = logits.softmax(-1).cumsum(-1)
    index = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).squeeze(-1)
    return index.clamp_(max=logits.shape[-1] - 1)


class Worded:
    """A channel of words alone."""

    relaxes = False
    entropies = False

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} is a channel of words alone")

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} is a channel of words alone")


@dataclass(frozen=True)
class Multinomial(Worded):
    """Words drawn from the speaker's distribution; the listener hears words. `dropout` as while teacher forcing.

    The words are the same whether or not `entropies` are asked for, or gradients (`learns`): a rollout's random stream
    hangs on the repr.
    """

    samples: int = 1
    entropies: bool = field(default=False, repr=False)
    learns: bool = field(default=True, repr=False)
    dropout = True

    @property
    def width(self) -> int:
        return self.samples

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        numbers = Numbers(batch, rng)
        return lambda t, logits, rows: Symbol(draw(logits, numbers.like(logits[:, :1], rows, self.width)))


@dataclass(frozen=True)
class Greedy(Worded):
    """The likeliest word each time; without dropout unless asked (self-critical.pytorch#6)."""

    dropout: bool = False
    samples = 1
    width = 1
    learns = False

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        return lambda t, logits, rows: Symbol(logits.max(-1).indices)  # argmax is slower on a CPU


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
    relaxes = True
    entropies = False

    @property
    def width(self) -> int:
        return self.samples

    def sample(self, logits: Tensor, numbers: Numbers, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """A word a row (N,), and the noise (N, V+1) that chose it, if any."""
        return draw(logits, numbers.like(logits[:, :1], rows, self.width)), None

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """(M, V+1): what the words' gradient goes to."""
        return logits.softmax(-1)

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        """(M, V+1): what a full distribution passes."""
        return self.relax(logits, noise, index)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
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

    def sample(self, logits: Tensor, numbers: Numbers, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        noise = numbers.like(logits, rows, self.width).log_().neg_().log_().neg_()
        return (logits + noise).max(-1).indices, noise

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        assert noise is not None
        return ((logits + noise) / self.temperature).softmax(-1)


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
    relaxes = True
    entropies = False

    @property
    def samples(self) -> int:
        return self.inner.samples

    @property
    def width(self) -> int:
        return self.inner.width

    def relax(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        return self.inner.relax(logits, noise, index)

    def distribution(self, logits: Tensor, noise: Tensor | None, index: Tensor) -> Tensor:
        return self.inner.distribution(logits, noise, index)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        numbers = Numbers(batch, rng)
        # on the host, so that a GPU need not be asked which they are
        host = numbers if rng.device.type == "cpu" else Numbers(batch, Generator().manual_seed(rng.initial_seed()))

        def whole() -> Tensor:
            return host.like(torch.empty(len(batch) * self.width), width=self.width) < self.rho

        captions = whole() if self.mix == "caption" else None

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            index, noise = self.inner.sample(logits, numbers, rows)
            passing = whole() if captions is None else captions
            if rows.device.type == "cpu":
                passing = passing[rows]
            chosen = passing.nonzero().squeeze(1).to(rows.device, non_blocking=True)
            onward = self.feed == "distribution"
            return Symbol(index, through=self.inner.through(index), whole=chosen, onward=onward, noise=noise)

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
class Forced(Worded):
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
        numbers = Numbers(batch, rng)

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            index = batch.captions[rows, t]
            if share == 0:
                return Symbol(index)
            own = numbers.like(logits[:, 0], rows) < share
            return Symbol(index, fed=torch.where(own, draw(logits, numbers.like(logits[:, :1], rows)), index))

        return step


@dataclass(frozen=True)
class Annealed:
    """How many words are forced: `start` at first, `by` fewer after each `every` epochs, down to none."""

    start: int
    every: int = 1
    by: int = 4

    def words(self, epoch: int) -> int:
        return max(0, self.start - self.by * (epoch // self.every))


def _begun(told: Tensor, lengths: Tensor, sure: int, numbers: Numbers, width: int) -> Step:
    """The first `lengths` (N,) words of captions `told` (N, T), then drawn ones; nobody draws for `sure` steps."""

    def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
        if t < sure:
            return Symbol(told[rows, t], told=True)
        drawn = draw(logits, numbers.like(logits[:, :1], rows, width))
        if t >= told.shape[1]:
            return Symbol(drawn)
        return Symbol(torch.where(t < lengths[rows], told[rows, t], drawn))

    return step


@dataclass(frozen=True)
class Prompted(Worded):
    """The first words of the batch's human captions, as many as `words` has in this epoch, then drawn ones (MIXER)."""

    words: Annealed
    samples = 1
    width = 1
    learns = True
    dropout = True

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        told = min(self.words.words(batch.epoch), batch.captions.shape[1])
        lengths = torch.full_like(batch.images, told)
        return _begun(batch.captions, lengths, told, Numbers(batch, rng), self.width)


@dataclass(frozen=True)
class Continued(Worded):
    """The batch's captions begun and ended otherwise: `each` times after the first word, the second, … of `places`.

    A caption that has ended by then is not spoken again: an empty one stands there.
    """

    each: int
    places: int
    learns = False
    dropout = True

    @property
    def samples(self) -> int:
        return self.each * self.places

    @property
    def width(self) -> int:
        return self.samples

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Step:
        told = batch.captions.repeat_interleave(self.width, 0)
        place = torch.arange(self.places, device=batch.device).repeat_interleave(self.each).repeat(len(batch))
        ended = told.gather(1, place.unsqueeze(1)) == 0
        return _begun(told.masked_fill(ended, 0), place + 1, 1, Numbers(batch, rng), self.width)


@dataclass(frozen=True)
class Beam(Worded):
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
        # all rows of an image begin alike: only the first may have offspring
        totals = torch.full((images, width), -torch.inf, dtype=batch.regions.dtype, device=device)
        totals[:, 0] = 0
        over = torch.zeros(images, width, dtype=torch.bool, device=device)

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            these = rows[::width] // width  # images
            ended = over[these]
            # a row has at most `width` offspring in the beam, so the rest of the vocabulary need not be sorted
            best, word = logits.topk(min(width, logits.shape[-1]), -1)
            best = best - logits.logsumexp(-1, keepdim=True)
            best, word = best.view(len(these), width, -1), word.view(len(these), width, -1)
            only_eos = torch.full_like(best, -torch.inf)
            only_eos[..., 0] = 0
            best = torch.where(ended.unsqueeze(-1), only_eos, best)
            word = word.masked_fill(ended.unsqueeze(-1), 0)
            totals[these], chosen = (totals[these].unsqueeze(-1) + best).flatten(1).topk(width, -1)
            parent = chosen // best.shape[-1]
            index = word.flatten(1).gather(1, chosen)
            over[these] = ended.gather(1, parent) | (index == 0)
            first = torch.arange(len(these), device=device).unsqueeze(1) * width
            return Symbol(index.flatten(), parent=(first + parent).flatten())

        return step
