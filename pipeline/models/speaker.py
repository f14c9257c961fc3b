"""Att2in2, the speaker of Rennie et al. 2017 as DiscCaptioning and PSST use it, and the one unroll of this project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from pipeline.models.kernels.unrolled import Attention, Table
from pipeline.models.spoken import Moment, credited, crossed, remembered
from pipeline.numbers import Numbers
from pipeline.protocols import Channel
from pipeline.runtime import devices
from pipeline.types import Batch, Message, caption_mask

State = tuple[Tensor, Tensor]  # h, c: (N, H)
Noted = tuple[Tensor, Tensor]  # rows (n,) of captions, and their states (n, H) without a graph
DROPOUT = 1  # its numbers are other than the words'
STILL_FULL = 0.75  # fewer captions than this share go on: those that ended are no longer carried along


@dataclass(frozen=True)
class View:
    """What the speaker has taken in of N images."""

    regions: Tensor  # (N, R, H)
    keys: Tensor  # (N, R, A)
    mask: Tensor  # (N, R) bool

    def of(self, rows: Tensor) -> View:
        """The images `rows`, in that order."""
        return View(self.regions[rows], self.keys[rows], self.mask[rows])


class Speaker(nn.Module):
    """One LSTM that attends to regions; attention enters the candidate only, which is a maxout of two halves.

    `vocabulary` is V: it hears V + 2 ids (EOS, words, BOS) and says V + 1. A caption has at most `max_words` words;
    one that fills them has no EOS. With a null image it can speak of an image that has no regions: what it then attends
    to is one learned vector (H,).
    """

    def __init__(
        self,
        vocabulary: int,
        region_size: int,
        words: int = 512,
        hidden: int = 512,
        attention: int = 512,
        dropout: float = 0.5,
        max_words: int = 16,
        null_image: bool = False,
    ) -> None:
        super().__init__()
        self.vocabulary, self.hidden, self.max_words = vocabulary, hidden, max_words
        self.arguments: dict[str, Any] = {
            "vocabulary": vocabulary,
            "region_size": region_size,
            "words": words,
            "hidden": hidden,
            "attention": attention,
            "dropout": dropout,
            "max_words": max_words,
        }
        self.word = nn.Embedding(vocabulary + 2, words)
        self.region = nn.Linear(region_size, hidden)
        self.key = nn.Linear(hidden, attention)
        self.query = nn.Linear(hidden, attention)
        self.weight = nn.Linear(attention, 1, bias=False)  # a softmax knows no bias
        self.from_word = nn.Linear(words, 5 * hidden)
        self.from_state = nn.Linear(hidden, 5 * hidden)
        self.from_regions = nn.Linear(hidden, 2 * hidden)
        self.logit = nn.Linear(hidden, vocabulary + 1)
        self.dropout = dropout
        self.null: nn.Parameter | None
        self.register_parameter("null", None)
        if null_image:
            self.add_null_image()

    def add_null_image(self) -> None:
        """Let it have a null image, of zeros as long as nothing is learned; one that it has stays as it is."""
        if self.null is None:
            self.null = nn.Parameter(torch.zeros_like(self.region.bias))
            self.arguments["null_image"] = True

    def see(self, batch: Batch) -> Tensor:
        """(B, R, H): the regions of `batch`, before dropout; once for all captions of a step."""
        seen = F.relu(self.region(batch.regions))
        return seen if self.null is None else torch.where(batch.region_mask.any(1).view(-1, 1, 1), seen, self.null)

    def look(self, batch: Batch, numbers: Numbers, seen: Tensor | None = None) -> View:
        """Take in the regions of `batch`; `seen` is what `see` made of it, if that has been done."""
        regions, mask = self.drop(self.see(batch) if seen is None else seen, numbers), batch.region_mask
        if self.null is not None:  # it is one region
            mask = torch.cat([mask[:, :1] | ~mask.any(1, keepdim=True), mask[:, 1:]], 1)
        return View(regions, self.key(regions), mask)

    def attention(self, view: View) -> Attention:
        """To the regions of `view`, for as many steps as there are."""
        return Attention(view.keys, view.regions, view.mask, self.weight.weight[0])

    def advance(self, heard: Tensor, state: State, attention: Callable[[Tensor], Tensor]) -> State:
        """One step of the recurrence; `heard` (N, 5H) is `from_word` of the words' embeddings.

        `attention` gives what is attended to (N, H) for a query (N, A).
        """
        h, c = state
        attended = attention(self.query(h))
        gates, candidate = (heard + self.from_state(h)).split([3 * self.hidden, 2 * self.hidden], -1)
        enter, forget, leave = gates.sigmoid().chunk(3, -1)
        candidate = torch.maximum(*(candidate + self.from_regions(attended)).chunk(2, -1))
        c = forget * c + enter * candidate
        return leave * torch.tanh(c), c

    def logits(self, h: Tensor) -> Tensor:
        """(N, V+1) of states `h` (N, H)."""
        return self.logit(h)

    def start(self, rows: int, like: Tensor) -> State:
        """The zero state of `rows` captions."""
        zero = like.new_zeros(rows, self.hidden)
        return zero, zero

    def speak(self, batch: Batch, channel: Channel, rng: Generator, seen: Tensor | None = None) -> Message:
        """Unroll `channel` over `batch`: B·samples captions of at most `max_words` words; `seen` as `look` has it.

        Words are chosen without a graph. What a gradient needs is made afterwards, of all time steps at once, except
        where the speaker goes on from a full distribution. After the word that ends a caption, what the listener hears
        is a constant EOS, without a gradient.
        """
        device, width = batch.device, channel.width
        rows = torch.arange(len(batch) * width, device=device)  # the captions that are carried along
        numbers = Numbers(batch, rng).apart(DROPOUT)
        view = self.look(batch, numbers, seen)
        if width > 1:
            view = view.of(rows // width)
        attention, words, logit = self.attention(view), Table(self.word.weight), Table(self.logit.weight)
        choose = channel.open(batch, self.vocabulary, rng)
        state = self.start(len(rows), view.regions)
        embedded = words.rows(torch.full_like(rows, self.vocabulary + 1))  # BOS
        ended = torch.zeros_like(rows, dtype=torch.bool)
        tokens = torch.zeros(len(rows), self.max_words, dtype=torch.int64, device=device)
        moments: list[Moment] = []
        noted: list[Noted] = []
        for t in range(self.max_words):
            heard = self.from_word(self.drop(F.relu(embedded), numbers, rows, width))
            state = self.advance(heard, state, attention)
            h = self.drop(state[0], numbers, rows, width)
            with torch.no_grad():
                logits = self.logits(h)
            symbol = choose(t, logits, rows)
            if symbol.parent is not None:  # rows moved: everything that belongs to them moves along
                state = (state[0][symbol.parent], state[1][symbol.parent])
                ended = ended[symbol.parent]
                tokens[rows] = tokens[rows[symbol.parent]]
            index = symbol.index.masked_fill(ended, 0)
            tokens[rows, t] = index
            moment = Moment(t, rows, ~ended, h, logits, symbol)
            if channel.learns:
                moments.append(moment)
                noted.append((rows, state[0].detach()))
            ended = index == 0
            # asking a GPU would make it wait; a CPU saves the steps
            left = _left(ended, width if symbol.parent is not None else 1) if devices.synchronous(device) else rows
            if not len(left) or t + 1 == self.max_words:
                break
            embedded = words.rows(index if symbol.fed is None else symbol.fed)
            if symbol.onward:
                assert symbol.whole is not None
                soft = moment.distribution(channel, logit, self.logit.bias)
                embedded = embedded.index_copy(0, symbol.whole, words.mixture(soft))
            if len(left) < STILL_FULL * len(rows):
                rows, ended, embedded, view = rows[left], ended[left], embedded[left], view.of(left)
                state, attention = (state[0][left], state[1][left]), self.attention(view)
        tokens = tokens.view(len(batch), width, -1)[:, : channel.samples, : t + 1].flatten(0, 1)
        message = _message(tokens, channel.samples, noted)
        if channel.relaxes:
            return replace(message, said=crossed(moments, channel, logit, self.logit.bias, t + 1))
        if not channel.learns:
            return message
        found = credited(moments, logit, self.logit.bias, tokens, channel.entropies)
        told = sum(moment.symbol.told for moment in moments)
        return replace(message, told=told, **vars(found))

    def drop(self, x: Tensor, numbers: Numbers, rows: Tensor | None = None, width: int = 1) -> Tensor:
        """Dropout of `x` (N, …), the `rows` of captions, `width` an image.

        Numbers are compared with the share that is kept: on a CPU, Bernoulli's take four times as long.
        """
        if not self.training or not self.dropout:
            return x
        keep = 1 - self.dropout
        return x * numbers.like(x, rows, width).lt_(keep).div_(keep)

    def read(self, batch: Batch, rng: Generator | None = None, seen: Tensor | None = None) -> Message:
        """Teacher forcing in one piece: what `speak` with the batch's captions forced on it gives, faster.

        The words are known, so all of them are heard at once, and what comes after a caption's end costs nothing.
        """
        tokens, numbers = batch.captions, Numbers(batch, rng)
        columns, mask = tokens.shape[1], caption_mask(tokens)
        order, going = _longest_first(mask)
        places = torch.cat([order[:rows] * columns + t for t, rows in enumerate(going)])  # (M,): n·T + t
        view = self.look(batch, numbers, seen).of(order)
        words, logit = Table(self.word.weight), Table(self.logit.weight)
        before = torch.cat([tokens.new_full((len(batch), 1), self.vocabulary + 1), tokens[:, :-1]], 1)
        embedded = words.rows(before.flatten()[places])
        heard = self.from_word(self.drop(F.relu(embedded), numbers, places, columns))  # (M, 5H)
        state, attention = self.start(len(batch), view.regions), self.attention(view)
        states, noted = [], []
        for x in heard.split(going):
            state = self.advance(x, (state[0][: len(x)], state[1][: len(x)]), attention)
            states.append(state[0])
            noted.append((order[: len(x)], state[0].detach()))
        h = self.drop(torch.cat(states), numbers, places, columns)
        with torch.no_grad():
            logits = self.logits(h)
        chosen = logit.log_prob(h, self.logit.bias, logits, tokens.flatten()[places])
        log_probs = chosen.new_zeros(tokens.numel()).index_copy(0, places, chosen).view(tokens.shape)
        noted += noted[-1:] * (columns - len(noted))  # after the longest caption's end
        return replace(_message(tokens, 1, noted), log_probs=log_probs * mask)


def _longest_first(mask: Tensor) -> tuple[Tensor, list[int]]:
    """The order of captions by length (N,), and how many of them have a word at each step; on a GPU, which would have
    to wait for that, all have one."""
    if not devices.synchronous(mask.device):
        return torch.arange(len(mask), device=mask.device), [len(mask)] * mask.shape[1]
    return mask.sum(1).argsort(descending=True, stable=True), [rows for rows in mask.sum(0).tolist() if rows]


def _left(ended: Tensor, together: int) -> Tensor:
    """(M,) int64: the rows of `ended` (N,) that go on; those of a beam stay `together`."""
    beams = ~ended.view(-1, together).all(1)
    return beams.repeat_interleave(together).nonzero().squeeze(1)


def _message(tokens: Tensor, samples: int, noted: Sequence[Noted]) -> Message:
    images = torch.arange(len(tokens), device=tokens.device) // samples
    states = partial(remembered, noted, len(tokens)) if noted else None
    return Message(tokens, caption_mask(tokens), images, samples, states=states)
