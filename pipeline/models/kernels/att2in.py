"""Att2in2 on a CPU: a step is one operation, and captions of one image share its regions."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder, Dropout
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
        weights = Weights(
            keys=keys,
            regions=regions,
            attention=plain.weight.weight[0],
            word=plain.from_word.weight,
            state=plain.from_state.weight,
            query=plain.query.weight,
            attended=plain.from_regions.weight,
            bias=_bias(plain),
        )
        rows = torch.arange(len(batch) * width)
        zero = seen.new_zeros(len(rows), plain.hidden)
        return FastState(zero, zero, rows, rows // width, width, drop, Recurrence(weights, plain.mask(batch)))

    def step(self, heard: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        entering = state.recurrence.entering(state.drop(F.relu(heard), state.rows, state.width))
        return self.advance(entering, state)

    def advance(self, entering: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        """A step; `entering` (n, 5H): what was heard gives the gates."""
        h, c = state.recurrence(entering, state.h, state.c, state.images)
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
        embedded = SharedWeight(plain.word.weight).rows(plain.before(tokens).flatten()[places])
        found = []
        for entering in state.recurrence.entering(drop(F.relu(embedded), places, columns)).split(going):
            state = self.select(state, slice(len(entering)))
            hidden, state = self.advance(entering, state)
            found.append(hidden)
        return torch.cat(found), places


class DecodingAtt2in(Decoder):
    """Says what `plain` says, without dropout, as long as its weights stay: what a word gives the gates is looked up.

    For many batches, since the table of all words, (V + 2, 5H), is made first. The large products are those of `dtype`:
    in bfloat16 they take half the time on processors that know it, and some captions differ.
    """

    learns = False

    @torch.no_grad()
    def __init__(self, plain: Att2in, dtype: torch.dtype | None = None) -> None:
        """`dtype`: None is that of the weights."""
        super().__init__(plain.vocabulary, plain.hidden, plain.max_words, 0.0, plain.arguments)
        self.fast, self.region, self.null = FastAtt2in(plain), plain.region, plain.null
        self.own, self.dtype = plain.word.weight.dtype, dtype or plain.word.weight.dtype
        self.logit = plain.logit if self.dtype == self.own else copy.deepcopy(plain.logit).to(self.dtype)
        gates = F.linear(F.relu(plain.word.weight), plain.from_word.weight, _bias(plain))
        self.word = nn.Embedding.from_pretrained(gates)
        self.of_state = torch.cat([plain.from_state.weight, plain.query.weight]).to(self.dtype)
        self.eval()

    def begin(self, batch: Batch, seen: Tensor, drop: Dropout, width: int) -> FastState:
        return self.fast.begin(batch, seen, drop, width)

    def step(self, heard: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        of_state = (state.h.to(self.dtype) @ self.of_state.T).to(self.own)
        gates, query = of_state.tensor_split([5 * self.hidden], 1)
        steps = state.recurrence.steps
        h, c, _, _ = steps.step(gates + heard, query.contiguous(), state.c, state.images)
        return h, replace(state, h=h, c=c)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.logit(hidden.to(self.dtype)).to(self.own)

    def select(self, state: FastState, rows: Tensor, same_images: bool = False) -> FastState:
        return self.fast.select(state, rows, same_images)


def _bias(plain: Att2in) -> Tensor:
    """(5H,): all that is added to the gates."""
    return plain.from_word.bias + plain.from_state.bias + F.pad(plain.from_regions.bias, (3 * plain.hidden, 0))


def _longest_first(mask: Tensor) -> tuple[Tensor, list[int]]:
    """The order of captions by length (N,), and how many of them have a word at each step."""
    return mask.sum(1).argsort(descending=True, stable=True), [rows for rows in mask.sum(0).tolist() if rows]
