"""Att2in2, the speaker of Rennie et al. 2017 as DiscCaptioning and PSST use it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.decoder import Decoder, Dropout
from pipeline.types import Batch


@dataclass(frozen=True)
class Att2inState:
    """Of n captions."""

    h: Tensor  # (n, H)
    c: Tensor  # (n, H)
    keys: Tensor  # (n, R, A), of the regions
    regions: Tensor  # (n, R, H)
    mask: Tensor  # (n, R) bool: which regions there are
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
        self.weight = nn.Linear(attention, 1, bias=False)  # a softmax ignores a bias
        self.from_word = nn.Linear(words, 5 * hidden)
        self.from_state = nn.Linear(hidden, 5 * hidden)
        self.from_regions = nn.Linear(hidden, 2 * hidden)
        self.logit = nn.Linear(hidden, vocabulary + 1)
        if null_image:
            self.add_null_image()

    def begin(self, batch: Batch, seen: Tensor, drop: Dropout, width: int) -> Att2inState:
        regions = drop(seen)
        rows = torch.arange(len(batch) * width, device=batch.device)
        per_image = self.key(regions), regions, self.mask(batch)
        keys, regions, mask = (x[rows // width] for x in per_image) if width > 1 else per_image
        zero = seen.new_zeros(len(rows), self.hidden)
        return Att2inState(zero, zero, keys, regions, mask, rows, width, drop)

    def step(self, heard: Tensor, state: Att2inState) -> tuple[Tensor, Att2inState]:
        return self.advance(self.from_word(state.drop(F.relu(heard), state.rows, state.width)), state)

    def advance(self, entering: Tensor, state: Att2inState) -> tuple[Tensor, Att2inState]:
        """One step of the recurrence; `entering` (n, 5H) is `from_word` of what was heard."""
        attended = self.attend(self.query(state.h), state)
        gates, candidate = (entering + self.from_state(state.h)).split([3 * self.hidden, 2 * self.hidden], -1)
        enter, forget, leave = gates.sigmoid().chunk(3, -1)
        candidate = torch.maximum(*(candidate + self.from_regions(attended)).chunk(2, -1))
        c = forget * state.c + enter * candidate
        h = leave * torch.tanh(c)
        return h, replace(state, h=h, c=c)

    def attend(self, query: Tensor, state: Att2inState) -> Tensor:
        """What a query (n, A) attends to (n, H): the sum of regions by their shares."""
        return torch.bmm(self.shares(query, state).unsqueeze(1), state.regions).squeeze(1)

    def shares(self, query: Tensor, state: Att2inState) -> Tensor:
        """(n, R): how much a query (n, A) attends to each region, 1 in all.

        Scores are `weight` (A,) · tanh(key + query), shares their softmax over the regions there are.
        """
        scores = torch.tanh(state.keys + query.unsqueeze(1)) @ self.weight.weight[0]
        return scores.masked_fill(~state.mask, -torch.inf).softmax(-1)

    def read(self, batch: Batch, seen: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        """The words are known, so all of them are heard at once."""
        tokens, state, found = batch.captions, self.begin(batch, seen, drop, 1), []
        places = torch.arange(tokens.numel(), device=tokens.device)
        embedded = self.word(self.before(tokens)).flatten(0, 1)
        heard = self.from_word(drop(F.relu(embedded), places, tokens.shape[1]))
        for entering in heard.view(*tokens.shape, -1).unbind(1):
            hidden, state = self.advance(entering, state)
            found.append(hidden)
        return torch.stack(found, 1).flatten(0, 1), places

    def select(self, state: Att2inState, rows: Tensor, same_images: bool = False) -> Att2inState:
        moved = replace(state, h=state.h[rows], c=state.c[rows])
        if same_images:
            return moved
        keys, regions, mask = state.keys[rows], state.regions[rows], state.mask[rows]
        return replace(moved, keys=keys, regions=regions, mask=mask, rows=state.rows[rows])
