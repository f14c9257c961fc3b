"""Channels of hard tokens: multinomial, greedy and beam search, and wrappers that change the logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.channels.streams import NamedStream
from pipeline.errors import UserError
from pipeline.protocols import Channel
from pipeline.random import BatchRandom
from pipeline.runtime import devices
from pipeline.types import Batch, TokenChoice

Choose = Callable[[int, Tensor, Tensor], TokenChoice]


def sample_tokens(logits: Tensor, uniform: Tensor) -> Tensor:
    """Sample token ids (N,) from `logits` (N, V): the inverse of the cumulative distribution at `uniform` (N, 1)."""
    if devices.is_synchronous(logits.device):
        from pipeline.channels import vocabulary_kernels  # imported here: importing numba takes 0.3 s

        index = torch.empty(len(logits), dtype=torch.int64)
        vocabulary_kernels.sample_rows(logits.contiguous().numpy(), uniform.flatten().numpy(), index.numpy())
        return index
    cumulative = logits.softmax(-1).cumsum(-1)
    index = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True).squeeze(-1)
    return index.clamp_(max=logits.shape[-1] - 1)


def top_k(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and ids (N, k) of the most probable tokens of `logits` (N, V), in descending order."""
    if not devices.is_synchronous(logits.device):
        best, word = logits.topk(k, -1)
        return best - log_partition(logits).unsqueeze(1), word
    from pipeline.channels import vocabulary_kernels

    best, word = logits.new_empty(len(logits), k), torch.empty(len(logits), k, dtype=torch.int64)
    vocabulary_kernels.top_k_rows(logits.contiguous().numpy(), best.numpy(), word.numpy())
    return best.sub_(log_partition(logits).unsqueeze(1)), word


def log_partition(logits: Tensor) -> Tensor:
    """Compute the log-sum-exp (N,) of `logits` (N, V)."""
    if not devices.is_synchronous(logits.device):
        return logits.logsumexp(-1)
    from pipeline.channels import vocabulary_kernels

    log_sums = logits.new_empty(len(logits))
    vocabulary_kernels.logsumexp_rows(logits.contiguous().numpy(), log_sums.numpy())
    return log_sums


class HardChannel(NamedStream):
    """Channel of hard tokens, without relaxation."""

    relaxes = False
    entropies = False


@dataclass(frozen=True)
class Multinomial(HardChannel):
    """Tokens drawn from the speaker's distribution, with dropout as in teacher forcing.

    The tokens depend neither on `entropies` nor on `requires_grad`.
    """

    samples: int = 1
    entropies: bool = False
    requires_grad: bool = True
    dropout = True
    rng_options = ("samples",)

    @property
    def width(self) -> int:
        return self.samples

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        batch_random = BatchRandom(batch, rng)
        return lambda t, logits, rows: TokenChoice(
            sample_tokens(logits, batch_random.rand_like(logits[:, :1], rows, self.width))
        )


@dataclass(frozen=True)
class Greedy(HardChannel):
    """The most probable token at each step; without dropout by default (self-critical.pytorch#6)."""

    dropout: bool = False
    samples = 1
    width = 1
    requires_grad = False
    rng_options = ("dropout",)

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        return lambda t, logits, rows: TokenChoice(logits.max(-1).indices)  # argmax is slower on a CPU


@dataclass(frozen=True)
class Beam(HardChannel):
    """Beam search by the sum of log-probabilities; ended captions stay in the beam and compete with the others.

    Raises UserError unless 1 ≤ `samples` ≤ `width`.
    """

    width: int = 2
    samples: int = 1
    requires_grad = False
    dropout = False
    rng_options = ("width", "samples")

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= self.width:
            raise UserError(
                f"beam of width {self.width}: expected 1 to {self.width} samples, got {self.samples}; change samples"
            )

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        images, width, device = len(batch), self.width, batch.device
        # all rows of an image begin equal, so only the first may be extended at the first step
        totals = torch.full((images, width), -torch.inf, dtype=batch.regions.dtype, device=device)
        totals[:, 0].zero_()
        ended_captions = torch.zeros(images, width, dtype=torch.bool, device=device)

        def step(t: int, logits: Tensor, rows: Tensor) -> TokenChoice:
            open_images = rows[::width] // width
            ended = ended_captions[open_images]
            # the beam keeps at most `width` extensions of a row, so the rest of the vocabulary need not be sorted
            best, word = top_k(logits, min(width, logits.shape[-1]))
            best, word = best.view(len(open_images), width, -1), word.view(len(open_images), width, -1)
            only_eos = torch.full_like(best, -torch.inf)
            only_eos[..., 0].zero_()
            best = torch.where(ended.unsqueeze(-1), only_eos, best)
            word = word.masked_fill(ended.unsqueeze(-1), 0)
            totals[open_images], selected = (totals[open_images].unsqueeze(-1) + best).flatten(1).topk(width, -1)
            parent = selected // best.shape[-1]
            index = word.flatten(1).gather(1, selected)
            ended_captions[open_images] = ended.gather(1, parent) | (index == 0)
            first = torch.arange(len(open_images), device=device).unsqueeze(1) * width
            return TokenChoice(index.flatten(), parent=(first + parent).flatten())

        return step


@dataclass(frozen=True)
class FilteredChannel(HardChannel):
    """Channel that changes the logits before `channel` chooses the tokens, for decoding only."""

    channel: Channel
    requires_grad = False
    dropout = False

    @property
    def samples(self) -> int:
        return self.channel.samples

    @property
    def width(self) -> int:
        return self.channel.width


@dataclass(frozen=True)
class BanToken(FilteredChannel):
    """The channel `channel` with the logit of the token `word` set to −inf."""

    word: int
    rng_name = "Without"
    rng_options = ("channel", "word")

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        choose, word = self.channel.open(batch, vocabulary, rng), torch.tensor([self.word], device=batch.device)
        return lambda t, logits, rows: choose(t, logits.index_fill(1, word, -torch.inf), rows)


@dataclass(frozen=True)
class TemperatureScaling(FilteredChannel):
    """The channel `channel` with all logits divided by `temperature`: below 1, probable tokens become more probable."""

    temperature: float
    rng_name = "Tempered"
    rng_options = ("channel", "temperature")

    def open(self, batch: Batch, vocabulary: int, rng: Generator) -> Choose:
        choose = self.channel.open(batch, vocabulary, rng)
        return lambda t, logits, rows: choose(t, logits / self.temperature, rows)
