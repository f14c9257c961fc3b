"""Att2in2, the speaker of Rennie et al. 2017 as DiscCaptioning and PSST use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.decoder import Decoder, Dropout
from pipeline.types import Batch

Seen = tuple[Tensor, Tensor, Tensor]  # keys (n, R, A), regions (n, R, H), mask (n, R)
Attend = Callable[[Tensor], Tensor]  # a query (n, A) → what is attended to (n, H)
Attention = Callable[[Tensor, Tensor, Tensor, Tensor], Attend]  # keys, regions, mask, weight


def attention(keys: Tensor, regions: Tensor, mask: Tensor, weight: Tensor) -> Attend:
    """To regions (N, R, H) by their keys (N, R, A); `mask` (N, R): which there are.

    Scores are `weight` (A,) · tanh(key + query), shares their softmax over all regions, masked and summing to 1 again.
    """

    def attend(query: Tensor) -> Tensor:
        shares = (torch.tanh(keys + query.unsqueeze(1)) @ weight).softmax(-1) * mask
        return torch.bmm((shares / shares.sum(-1, keepdim=True)).unsqueeze(1), regions).squeeze(1)

    return attend


@dataclass(frozen=True)
class Att2inState:
    """Of n captions."""

    h: Tensor  # (n, H)
    c: Tensor  # (n, H)
    seen: Seen
    attend: Attend
    attention: Attention  # which made `attend`
    rows: Tensor  # (n,): which captions these are
    width: int  # captions per image
    drop: Dropout


class Att2in(Decoder):
    """One LSTM that attends to regions; attention enters the candidate only, which is a maxout of two halves."""

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
        arguments = {
            "vocabulary": vocabulary,
            "region_size": region_size,
            "words": words,
            "hidden": hidden,
            "attention": attention,
            "dropout": dropout,
            "max_words": max_words,
        }
        super().__init__(vocabulary, hidden, max_words, dropout, arguments)
        self.word = nn.Embedding(vocabulary + 2, words)
        self.region = nn.Linear(region_size, hidden)
        self.key = nn.Linear(hidden, attention)
        self.query = nn.Linear(hidden, attention)
        self.weight = nn.Linear(attention, 1, bias=False)  # a softmax knows no bias
        self.from_word = nn.Linear(words, 5 * hidden)
        self.from_state = nn.Linear(hidden, 5 * hidden)
        self.from_regions = nn.Linear(hidden, 2 * hidden)
        self.logit = nn.Linear(hidden, vocabulary + 1)
        if null_image:
            self.add_null_image()

    def begin(
        self, batch: Batch, seen: Tensor, drop: Dropout, width: int, attention: Attention = attention
    ) -> Att2inState:
        """`attention`: another way to compute the same."""
        regions = drop(seen)
        parts: Seen = (self.key(regions), regions, self.mask(batch))
        rows = torch.arange(len(batch) * width, device=batch.device)
        if width > 1:
            parts = _rows(parts, rows // width)
        zero = seen.new_zeros(len(rows), self.hidden)
        attend = attention(*parts, self.weight.weight[0])
        return Att2inState(zero, zero, parts, attend, attention, rows, width, drop)

    def step(self, heard: Tensor, state: Att2inState) -> tuple[Tensor, Att2inState]:
        return self.advance(self.from_word(state.drop(F.relu(heard), state.rows, state.width)), state)

    def advance(self, entering: Tensor, state: Att2inState) -> tuple[Tensor, Att2inState]:
        """One step of the recurrence; `entering` (n, 5H) is `from_word` of what was heard."""
        attended = state.attend(self.query(state.h))
        gates, candidate = (entering + self.from_state(state.h)).split([3 * self.hidden, 2 * self.hidden], -1)
        enter, forget, leave = gates.sigmoid().chunk(3, -1)
        candidate = torch.maximum(*(candidate + self.from_regions(attended)).chunk(2, -1))
        c = forget * state.c + enter * candidate
        h = leave * torch.tanh(c)
        return h, replace(state, h=h, c=c)

    def select(self, state: Att2inState, rows: Tensor, same_images: bool = False) -> Att2inState:
        moved = replace(state, h=state.h[rows], c=state.c[rows])
        if same_images:
            return moved
        parts = _rows(state.seen, rows)
        attend = state.attention(*parts, self.weight.weight[0])
        return replace(moved, seen=parts, attend=attend, rows=state.rows[rows])


def _rows(parts: Seen, rows: Tensor) -> Seen:
    keys, regions, mask = parts
    return keys[rows], regions[rows], mask[rows]
