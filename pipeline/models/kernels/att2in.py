"""Att2in2 on a CPU: a step is one operation, and captions of one image share its regions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Dropout
from pipeline.models.kernels.recurrence import Recurrence, Weights
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.types import Batch, caption_mask


@dataclass(frozen=True)
class FastState:
    """Of n captions."""

    h: Tensor  # (n, H)
    c: Tensor  # (n, H)
    rows: Tensor  # (n,): which captions these are
    images: Tensor  # (n,): and of which of the batch's images
    width: int
    drop: Dropout
    recurrence: Recurrence


class FastAtt2in:
    """Computes what `plain` does."""

    def __init__(self, plain: Att2in) -> None:
        self.plain = plain

    def begin(self, batch: Batch, seen: Tensor, drop: Dropout, width: int) -> FastState:
        plain, regions = self.plain, drop(seen)
        # what is added to the same sums is added once: the query's bias to the keys, the others to the gates
        keys = F.linear(regions, plain.key.weight, plain.key.bias + plain.query.bias)
        of_candidate = F.pad(plain.from_regions.bias, (3 * plain.hidden, 0))
        weights = Weights(
            keys=keys,
            regions=regions,
            attention=plain.weight.weight[0],
            word=plain.from_word.weight,
            state=plain.from_state.weight,
            query=plain.query.weight,
            attended=plain.from_regions.weight,
            bias=plain.from_word.bias + plain.from_state.bias + of_candidate,
        )
        rows = torch.arange(len(batch) * width)
        zero = seen.new_zeros(len(rows), plain.hidden)
        return FastState(zero, zero, rows, rows // width, width, drop, Recurrence(weights, plain.mask(batch)))

    def step(self, heard: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        return self.advance(state.drop(F.relu(heard), state.rows, state.width), state)

    def advance(self, heard: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        """A step; `heard` (n, E) as it enters the recurrence."""
        h, c = state.recurrence(heard, state.h, state.c, state.images)
        return h, replace(state, h=h, c=c)

    def select(self, state: FastState, rows: Tensor | slice, same_images: bool = False) -> FastState:
        moved = replace(state, h=state.h[rows], c=state.c[rows])
        return moved if same_images else replace(moved, rows=state.rows[rows], images=state.images[rows])

    def read(self, batch: Batch, seen: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        """As the plain one's; what comes after a caption's end costs nothing."""
        tokens, plain = batch.captions, self.plain
        columns = tokens.shape[1]
        order, going = _longest_first(caption_mask(tokens))
        places = torch.cat([order[:rows] * columns + t for t, rows in enumerate(going)])
        state = self.select(self.begin(batch, seen, drop, 1), order)
        before = torch.cat([tokens.new_full((len(tokens), 1), plain.vocabulary + 1), tokens[:, :-1]], 1)
        embedded = SharedWeight(plain.word.weight).rows(before.flatten()[places])
        found = []
        for heard in drop(F.relu(embedded), places, columns).split(going):
            state = self.select(state, slice(len(heard)))
            hidden, state = self.advance(heard, state)
            found.append(hidden)
        return torch.cat(found), places


def _longest_first(mask: Tensor) -> tuple[Tensor, list[int]]:
    """The order of captions by length (N,), and how many of them have a word at each step."""
    return mask.sum(1).argsort(descending=True, stable=True), [rows for rows in mask.sum(0).tolist() if rows]
