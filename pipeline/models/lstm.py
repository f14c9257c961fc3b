"""The decoder of visual dialog (Lu et al. 2017): an LSTM that hears the encoding before the first word."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from pipeline.models.decoder import Decoder, Dropout
from pipeline.types import Batch, caption_mask


@dataclass(frozen=True)
class LstmState:
    """Of n answers."""

    h: Tensor  # (n, H)
    c: Tensor  # (n, H)
    rows: Tensor  # (n,): which answers these are
    width: int  # answers per question
    drop: Dropout


class Lstm(Decoder):
    """What it is told is (B, 3, H): the encoding, then the states that it begins with."""

    def __init__(
        self, vocabulary: int, region_size: int, words: int = 300, dropout: float = 0.5, max_words: int = 9
    ) -> None:
        """`region_size`: H, that of the encoding and of its own states."""
        arguments = {
            "vocabulary": vocabulary,
            "region_size": region_size,
            "words": words,
            "dropout": dropout,
            "max_words": max_words,
        }
        super().__init__(vocabulary, region_size, max_words, dropout, arguments)
        self.word = nn.Embedding(vocabulary + 2, words)
        self.region = nn.Linear(region_size, words)
        self.lstm = nn.LSTM(words, region_size, batch_first=True)
        self.logit = nn.Linear(region_size, vocabulary + 1)

    def see(self, batch: Batch) -> Tensor:
        return batch.regions

    def begin(self, batch: Batch, seen: Tensor, drop: Dropout, width: int) -> LstmState:
        encoding, h, c = seen.unbind(1)
        h, c = self._step(self.region(encoding), h, c)
        rows = torch.arange(len(batch) * width, device=seen.device)
        if width > 1:
            h, c = h[rows // width], c[rows // width]
        return LstmState(h, c, rows, width, drop)

    def step(self, heard: Tensor, state: LstmState) -> tuple[Tensor, LstmState]:
        h, c = self._step(state.drop(heard, state.rows, state.width), state.h, state.c)
        return h, replace(state, h=h, c=c)

    def select(self, state: LstmState, rows: Tensor, same_images: bool = False) -> LstmState:
        moved = replace(state, h=state.h[rows], c=state.c[rows])
        return moved if same_images else replace(moved, rows=state.rows[rows])

    def read(self, batch: Batch, seen: Tensor, drop: Dropout) -> tuple[Tensor, Tensor]:
        """The words are known, so all of them are heard at once, and none after an answer's end."""
        tokens, state = batch.captions, self.begin(batch, seen, drop, 1)
        heard = drop(self.word(self.before(tokens)))
        mask = caption_mask(tokens)
        packed = pack_padded_sequence(heard, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        states, _ = self.lstm(packed, (state.h.unsqueeze(0), state.c.unsqueeze(0)))
        assert packed.sorted_indices is not None
        # packed: by time step, the longest answers first
        at = torch.arange(tokens.numel(), device=tokens.device).view(tokens.shape)[packed.sorted_indices]
        return states.data, at.T[mask[packed.sorted_indices].T]

    def _step(self, heard: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        _, (h, c) = self.lstm(heard.unsqueeze(1), (h.unsqueeze(0), c.unsqueeze(0)))
        return h[0], c[0]
