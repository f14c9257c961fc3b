"""Recurrent layers without dropout that work on a GPU wherever they work on a CPU."""

from __future__ import annotations

from typing import Any

from torch import nn


class _AnywhereRnn(nn.RNNBase):
    """A layer that gives cuDNN contiguous states, and runs in training mode there, since cuDNN has a backward pass only
    in that mode.

    Without dropout both modes compute the same. A frozen listener is in evaluation mode while a caption's gradient
    passes through it.
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


class Gru(_AnywhereRnn, nn.GRU):
    """nn.GRU that has a gradient in evaluation mode on every device."""


class Lstm(_AnywhereRnn, nn.LSTM):
    """nn.LSTM that takes any states, and has a gradient in evaluation mode, on every device."""
