"""States of an LSTM over texts of different lengths, on the CPU."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from pipeline.models.kernels.packing import pack_texts


class TextStates(NamedTuple):
    """States of N texts with M inputs in all, ordered by time step, the longest texts first."""

    states: Tensor  # (M, H)
    positions: Tensor  # (M,): index of each state's input among the N · T inputs
    last: Tensor  # (N,): index in `states` of each text's last state
    cells: Tensor  # (N, H): each text's last cell


def compute_text_lstm(
    lstm: nn.LSTM, words: Tensor, lengths: Tensor, initial: tuple[Tensor, Tensor] | None = None
) -> TextStates:
    """Compute the states of `lstm` for the first `lengths` (N,) ≥ 1 inputs of `words` (N, T, E).

    `initial` are hidden states and cells (N, H), by default 0. The states equal those of `lstm`, but no step is
    computed for padding. The gradient of the recurrent weight is one product over all time steps instead of one per
    step.
    """
    order, batch_sizes, positions = pack_texts(lengths, words.shape[1])
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    input_weight, state_weight, *biases = (cast(Tensor, getattr(lstm, name)) for name in names)
    inputs = nn.functional.linear(words.flatten(0, 1).index_select(0, positions), input_weight, biases[0] + biases[1])
    starts = batch_sizes.cumsum(0) - batch_sizes
    last = starts[lengths[order] - 1] + torch.arange(len(order))
    if initial is None:
        h = c = inputs.new_zeros(len(order), lstm.hidden_size)
    else:
        h, c = (each.index_select(0, order) for each in initial)
    states, cells = _Steps.apply(inputs, state_weight, h, c, batch_sizes.tolist(), last)
    inverse = order.argsort()
    return TextStates(states, positions, last.index_select(0, inverse), cells.index_select(0, inverse))


class _Steps(Function):
    """Hidden states (M, H) and last cells (N, H) from gate inputs (M, 4H); step t has `batch_sizes[t]` texts."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, h: Tensor, c: Tensor, batch_sizes: list[int], last: Tensor
    ) -> tuple[Tensor, Tensor]:
        from pipeline.models.kernels import loops

        gates = inputs.clone()
        states, cells = inputs.new_empty(2, len(inputs), weight.shape[1])
        previous, cell = h, c
        for each in zip(*(x.split(batch_sizes) for x in (gates, states, cells)), strict=True):
            gate, state, new_cell = each
            previous, cell = previous[: len(gate)], cell[: len(gate)]
            gate.addmm_(previous, weight.T)
            loops.text_lstm_forward(*(x.detach().numpy() for x in (gate, cell, new_cell, state)))
            previous, cell = state, new_cell
        ctx.batch_sizes = batch_sizes
        ctx.save_for_backward(weight, h, c, gates, states, cells, last)
        return states, cells.index_select(0, last)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_last: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, None]:
        from pipeline.models.kernels import loops

        weight, h, c, gates, states, cells, _ = ctx.saved_tensors
        sizes = ctx.batch_sizes
        grad_h, grad_c = torch.zeros_like(h), grad_last.clone(memory_format=torch.contiguous_format)
        grad_gates = torch.empty_like(gates)
        parts = [x.split(sizes) for x in (gates, cells, grad_states, grad_gates)]
        previous_cells = [c[: sizes[0]], *(cell[:rows] for cell, rows in zip(parts[1], sizes[1:], strict=False))]
        for gate, cell, grad_state, grad_gate, previous in reversed(list(zip(*parts, previous_cells, strict=True))):
            rows = len(gate)
            d_h, d_c = grad_h[:rows].add_(grad_state), grad_c[:rows]
            loops.text_lstm_backward(*(x.numpy() for x in (gate, previous, cell, d_h, d_c, grad_gate)))
            torch.mm(grad_gate, weight, out=d_h)
        previous_states = [h[: sizes[0]], *(x[:rows] for x, rows in zip(states.split(sizes), sizes[1:], strict=False))]
        grad_weight = grad_gates.T @ torch.cat(previous_states)
        return grad_gates, grad_weight, grad_h, grad_c, None, None
