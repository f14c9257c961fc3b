"""Att2in2, the speaker of Rennie et al. 2017, in the form used by DiscCaptioning and PSST."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.types import Batch


@dataclass(frozen=True)
class Att2inState:
    """Decoder state of n captions."""

    h: Tensor  # (n, H)
    c: Tensor  # (n, H)
    keys: Tensor  # (n, R, A): attention keys of the regions
    regions: Tensor  # (n, R, H)
    mask: Tensor  # (n, R) bool: True for existing regions
    rows: Tensor  # (n,): indices of these captions among all captions of the unroll
    width: int  # captions per image
    drop: RolloutDropout


class Att2in(Decoder[Att2inState]):
    """LSTM speaker with attention over regions.

    The attended regions enter only the cell candidate, which is a maxout of two halves.
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
        super().__init__(vocabulary, hidden, max_words, dropout, collect_constructor_arguments(locals()))
        self.word = nn.Embedding(vocabulary + 2, words)
        self.region = nn.Linear(region_size, hidden)
        self.key = nn.Linear(hidden, attention)
        self.query = nn.Linear(hidden, attention)
        self.weight = nn.Linear(attention, 1, bias=False)  # a bias would not change the softmax
        self.from_word = nn.Linear(words, 5 * hidden)
        self.from_state = nn.Linear(hidden, 5 * hidden)
        self.from_regions = nn.Linear(hidden, 2 * hidden)
        self.logit = nn.Linear(hidden, vocabulary + 1)
        if null_image:
            self.add_null_image()

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> Att2inState:
        regions = drop(encoded)
        rows = torch.arange(len(batch) * width, device=batch.device)
        per_image = self.key(regions), regions, self.mask(batch)
        keys, regions, mask = (x[rows // width] for x in per_image) if width > 1 else per_image
        zero = encoded.new_zeros(len(rows), self.hidden)
        return Att2inState(zero, zero, keys, regions, mask, rows, width, drop)

    def step(self, inputs: Tensor, state: Att2inState) -> tuple[Tensor, Att2inState]:
        return self.advance(self.from_word(state.drop(F.relu(inputs), state.rows, state.width)), state)

    def advance(self, gate_inputs: Tensor, state: Att2inState) -> tuple[Tensor, Att2inState]:
        """Compute one step of the recurrence; `gate_inputs` (n, 5H) is `from_word` of the input embeddings."""
        attended = self.attend(self.query(state.h), state)
        gates, candidate = (gate_inputs + self.from_state(state.h)).split([3 * self.hidden, 2 * self.hidden], -1)
        input_gate, forget_gate, output_gate = gates.sigmoid().chunk(3, -1)
        candidate = torch.maximum(*(candidate + self.from_regions(attended)).chunk(2, -1))
        c = forget_gate * state.c + input_gate * candidate
        h = output_gate * torch.tanh(c)
        return h, replace(state, h=h, c=c)

    def attend(self, query: Tensor, state: Att2inState) -> Tensor:
        """Compute the attended regions (n, H) of queries (n, A): sums of regions, weighted by `attention_weights`."""
        return torch.bmm(self.attention_weights(query, state).unsqueeze(1), state.regions).squeeze(1)

    def attention_weights(self, query: Tensor, state: Att2inState) -> Tensor:
        """Compute the attention weights (n, R) of queries (n, A) on regions; they sum to 1.

        Scores are `weight` (A,) · tanh(key + query); the weights are their softmax over the existing regions.
        """
        scores = torch.tanh(state.keys + query.unsqueeze(1)) @ self.weight.weight[0]
        return scores.masked_fill(~state.mask, -torch.inf).softmax(-1)

    def teacher_force(self, batch: Batch, encoded: Tensor, drop: RolloutDropout) -> tuple[Tensor, Tensor]:
        """Run teacher forcing; the input projections of all tokens are computed at once, since the tokens are known."""
        tokens, state, states = batch.captions, self.begin(batch, encoded, drop, 1), []
        positions = torch.arange(tokens.numel(), device=tokens.device)
        embedded = self.word(self.shift_right(tokens)).flatten(0, 1)
        all_inputs = self.from_word(drop(F.relu(embedded), positions, tokens.shape[1]))
        for gate_inputs in all_inputs.view(*tokens.shape, -1).unbind(1):
            hidden, state = self.advance(gate_inputs, state)
            states.append(hidden)
        return torch.stack(states, 1).flatten(0, 1), positions

    def select(self, state: Att2inState, rows: Tensor, same_images: bool = False) -> Att2inState:
        selected = replace(state, h=state.h[rows], c=state.c[rows])
        if same_images:
            return selected
        keys, regions, mask = state.keys[rows], state.regions[rows], state.mask[rows]
        return replace(selected, keys=keys, regions=regions, mask=mask, rows=state.rows[rows])
