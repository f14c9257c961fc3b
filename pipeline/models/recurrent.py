"""Recurrent layers without dropout that work on a GPU wherever they work on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from pipeline.models.kernels.text_lstm import TextStates, compute_text_lstm
from pipeline.runtime import devices


class _DeviceIndependentRnn(nn.RNNBase):
    """Recurrent layer that runs cuDNN in training mode; the states of an LSTM are made contiguous.

    cuDNN has a backward pass only in training mode; without dropout, both modes compute the same result. A frozen
    listener is in evaluation mode while a caption's gradient passes through it.
    """

    def forward(self, inputs: Any, state: Any = None) -> Any:
        if not self.weight_hh_l0.is_cuda:
            return super().forward(inputs, state)
        if isinstance(state, tuple):
            state = tuple(part.contiguous() for part in state)
        mode, self.training = self.training, True
        try:
            return super().forward(inputs, state)
        finally:
            self.training = mode


class Gru(_DeviceIndependentRnn, nn.GRU):
    """nn.GRU that has a gradient in evaluation mode on every device."""


class Lstm(_DeviceIndependentRnn, nn.LSTM):
    """nn.LSTM that accepts non-contiguous states and has a gradient in evaluation mode, on every device."""


def compute_text_states(lstm: nn.LSTM, words: Tensor, lengths: Tensor) -> TextStates:
    """Compute the states of `lstm` for the first `lengths` (N,) ≥ 1 inputs of `words` (N, T, E), on any device."""
    if devices.is_synchronous(words.device):
        return compute_text_lstm(lstm, words, lengths)
    packed = pack_padded_sequence(words, lengths.cpu(), batch_first=True, enforce_sorted=False)
    states, (_, cells) = lstm(packed)
    order, inverse = packed.sorted_indices, packed.unsorted_indices
    assert order is not None
    assert inverse is not None
    steps = torch.arange(words.shape[1], device=words.device)
    positions = (order.unsqueeze(1) * words.shape[1] + steps).T[(steps < lengths[order].unsqueeze(1)).T]
    starts = (packed.batch_sizes.cumsum(0) - packed.batch_sizes).to(words.device)
    return TextStates(states.data, positions, starts[lengths - 1] + inverse, cells[0])
