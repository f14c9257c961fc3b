"""Channels of words alone: drawn, greedy, beam search; and any of them without one word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.channels.named import Named
from pipeline.errors import UserError
from pipeline.numbers import Numbers
from pipeline.protocols import Channel
from pipeline.runtime import devices
from pipeline.types import Batch, Symbol

Choose = Callable[[int, Tensor, Tensor], Symbol]


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """(N,) word ids by the distributions of `logits` (N, V): their cumulative sums inverted at `uniform` (N, 1)."""
    if devices.synchronous(logits.device):
        from pipeline.channels import over_words  # here: numba takes a second to import

        index = torch.empty(len(logits), dtype=torch.int64)
        over_words.draw(logits.contiguous().numpy(), uniform.flatten().numpy(), index.numpy())
        return index
    cumulative = logits.softmax(-1).cumsum(-1)
    index = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).squeeze(-1)
    return index.clamp_(max=logits.shape[-1] - 1)


def top(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The log-probabilities and ids (N, k) of the likeliest words by `logits` (N, V), the likeliest first."""
    if not devices.synchronous(logits.device):
        best, word = logits.topk(k, -1)
        return best - log_total(logits).unsqueeze(1), word
    from pipeline.channels import over_words

    best, word = logits.new_empty(len(logits), k), torch.empty(len(logits), k, dtype=torch.int64)
    over_words.top(logits.contiguous().numpy(), best.numpy(), word.numpy())
    return best.sub_(log_total(logits).unsqueeze(1)), word


def log_total(logits: Tensor) -> Tensor:
    """(N,): the logarithm of the sum of exponentials of `logits` (N, V)."""
    if not devices.synchronous(logits.device):
        return logits.logsumexp(-1)
    from pipeline.channels import over_words

    found = logits.new_empty(len(logits))
    over_words.log_sums(logits.contiguous().numpy(), found.numpy())
    return found


class Worded(Named):
    """A channel of words alone."""

    relaxes = False
    entropies = False


@dataclass(frozen=True)
class Multinomial(Worded):
    """Words drawn from the speaker's distribution; the listener hears words. `dropout` as while teacher forcing.

    The words are the same whether or not `entropies` are asked for, or gradients (`learns`).
    """

    samples: int = 1
    entropies: bool = False
    learns: bool = True
    dropout = True
    named = ("samples",)

    @property
    def width(self) -> int:
        return self.samples

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        numbers = Numbers(batch, rng)
        return lambda t, logits, rows: Symbol(draw(logits, numbers.like(logits[:, :1], rows, self.width)))


@dataclass(frozen=True)
class Greedy(Worded):
    """The likeliest word each time; without dropout unless asked (self-critical.pytorch#6)."""

    dropout: bool = False
    samples = 1
    width = 1
    learns = False
    named = ("dropout",)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        return lambda t, logits, rows: Symbol(logits.max(-1).indices)  # argmax is slower on a CPU


@dataclass(frozen=True)
class Beam(Worded):
    """Beam search by the sum of log-probabilities; ended captions stay in the beam and compete with the others."""

    width: int = 2
    samples: int = 1
    learns = False
    dropout = False
    named = ("width", "samples")

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= self.width:
            raise UserError(f"a beam of width {self.width} gives 1 to {self.width} captions, not {self.samples}")

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        images, width, device = len(batch), self.width, batch.device
        # all rows of an image begin alike: only the first may have offspring
        totals = torch.full((images, width), -torch.inf, dtype=batch.regions.dtype, device=device)
        totals[:, 0].zero_()
        over = torch.zeros(images, width, dtype=torch.bool, device=device)

        def step(t: int, logits: Tensor, rows: Tensor) -> Symbol:
            these = rows[::width] // width  # images
            ended = over[these]
            # a row has at most `width` offspring in the beam, so the rest of the vocabulary need not be sorted
            best, word = top(logits, min(width, logits.shape[-1]))
            best, word = best.view(len(these), width, -1), word.view(len(these), width, -1)
            only_eos = torch.full_like(best, -torch.inf)
            only_eos[..., 0].zero_()
            best = torch.where(ended.unsqueeze(-1), only_eos, best)
            word = word.masked_fill(ended.unsqueeze(-1), 0)
            totals[these], chosen = (totals[these].unsqueeze(-1) + best).flatten(1).topk(width, -1)
            parent = chosen // best.shape[-1]
            index = word.flatten(1).gather(1, chosen)
            over[these] = ended.gather(1, parent) | (index == 0)
            first = torch.arange(len(these), device=device).unsqueeze(1) * width
            return Symbol(index.flatten(), parent=(first + parent).flatten())

        return step


@dataclass(frozen=True)
class Restricted(Worded):
    """`channel` with fewer words to choose from. It only decodes."""

    channel: Channel
    learns = False
    dropout = False

    @property
    def samples(self) -> int:
        return self.channel.samples

    @property
    def width(self) -> int:
        return self.channel.width


@dataclass(frozen=True)
class Without(Restricted):
    """`channel` without one word: its logit is −inf, and the shares of the others grow."""

    word: int
    named = ("channel", "word")

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        choose, word = self.channel.open(batch, vocabulary, rng), torch.tensor([self.word], device=batch.device)
        return lambda t, logits, rows: choose(t, logits.index_fill(1, word, -torch.inf), rows)
