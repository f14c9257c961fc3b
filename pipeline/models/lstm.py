"""LSTM decoders without attention: the base class, and the speaker of Chen and Jin (2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pipeline.models.constructor_arguments import collect_constructor_arguments
from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.models.kernels.text_lstm import compute_text_lstm
from pipeline.models.recurrent import Lstm
from pipeline.runtime import devices
from pipeline.types import Batch, make_caption_mask


@dataclass(frozen=True)
class LstmState:
    """State of N captions."""

    h: Tensor  # (N, H)
    c: Tensor  # (N, H)
    rows: Tensor  # (N,) int64: the captions' rows in the unroll, which determine their random numbers
    width: int  # captions per image
    drop: RolloutDropout


class LstmDecoder(Decoder[LstmState]):
    """Decoder with one LSTM layer `lstm` over word embeddings; a subclass computes the initial state.

    Dropout applies to embeddings and outputs, not to the recurrent state.
    """

    def __init__(
        self,
        vocabulary: int,
        region: tuple[int, int],
        words: int,
        hidden: int,
        max_words: int,
        dropout: float,
        arguments: dict[str, Any],
    ) -> None:
        """Build the layers; `region` holds the sizes of a region and of its projection."""
        super().__init__(vocabulary, hidden, max_words, dropout, arguments)
        self.word = nn.Embedding(vocabulary + 2, words)
        self.region = nn.Linear(*region)
        self.lstm = Lstm(words, hidden, batch_first=True)
        self.logit = nn.Linear(hidden, vocabulary + 1)

    def step(self, inputs: Tensor, state: LstmState) -> tuple[Tensor, LstmState]:
        h, c = self._step(state.drop(inputs, state.rows, state.width), state.h, state.c)
        return h, replace(state, h=h, c=c)

    def select(self, state: LstmState, rows: Tensor, same_images: bool = False) -> LstmState:
        subset = replace(state, h=state.h[rows], c=state.c[rows])
        return subset if same_images else replace(subset, rows=state.rows[rows])

    def teacher_force(self, batch: Batch, encoded: Tensor, drop: RolloutDropout) -> tuple[Tensor, Tensor]:
        """Run the LSTM over whole captions in one call; on a CPU, the call skips the padding after EOS."""
        tokens, state = batch.captions, self.begin(batch, encoded, drop, 1)
        inputs = drop(self.word(self.shift_right(tokens)))
        if not devices.is_synchronous(tokens.device):
            states, _ = self.lstm(inputs, (state.h.unsqueeze(0), state.c.unsqueeze(0)))
            return states.flatten(0, 1), torch.arange(tokens.numel(), device=tokens.device)
        text_states = compute_text_lstm(self.lstm, inputs, make_caption_mask(tokens).sum(1), (state.h, state.c))
        return text_states.states, text_states.positions

    def _step(self, inputs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        _, (h, c) = self.lstm(inputs.unsqueeze(1), (h.unsqueeze(0), c.unsqueeze(0)))
        return h[0], c[0]

    def _start(self, h: Tensor, c: Tensor, drop: RolloutDropout, width: int) -> LstmState:
        """Return the state of `width` captions per row of `h` and `c` (B, H)."""
        rows = torch.arange(len(h) * width, device=h.device)
        if width > 1:
            h, c = h[rows // width], c[rows // width]
        return LstmState(h, c, rows, width, drop)


class PooledLstm(LstmDecoder):
    """Speaker of Chen and Jin 2020: the projected mean of the regions is the initial hidden state and cell.

    The projection `region` has no activation. The null image's vector replaces the projected mean of images without
    regions.
    """

    def __init__(
        self,
        vocabulary: int,
        region_size: int,
        words: int = 512,
        hidden: int = 512,
        dropout: float = 0.5,
        max_words: int = 16,
        null_image: bool = False,
    ) -> None:
        arguments = collect_constructor_arguments(locals())
        super().__init__(vocabulary, (region_size, hidden), words, hidden, max_words, dropout, arguments)
        if null_image:
            self.add_null_image()

    def encode_image(self, batch: Batch) -> Tensor:
        """Return (B, 1, H): the projected mean of each image's regions."""
        mask = batch.region_mask.unsqueeze(2)
        mean = (batch.regions * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        projected = self.region(mean)
        return projected if self.null is None else torch.where(mask.any(1, keepdim=True), projected, self.null)

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> LstmState:
        initial = encoded.squeeze(1)
        return self._start(initial, initial, drop, width)

    def _step(self, inputs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        # on a CPU, the backward pass of nn.LSTM takes 1.6 to 2 times as long
        w_ih, w_hh, b_ih, b_hh = self.lstm.all_weights[0]
        return torch.lstm_cell(inputs, (h, c), w_ih, w_hh, b_ih, b_hh)
