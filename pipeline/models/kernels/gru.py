"""Last states of a GRU over captions of different lengths, on the CPU."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from pipeline.models.kernels.packing import pack_texts


def compute_last_gru_states(gru: nn.GRU, words: Tensor, lengths: Tensor) -> Tensor:
    """Compute the states (N, H) of `gru` after the first `lengths` (N,) ≥ 1 inputs of `words` (N, T, E).

    The result equals that of `gru` up to rounding, but no step is computed for padding. The gradient of the recurrent
    weight is one product over all time steps instead of one per step.
    """
    order, batch_sizes, positions = pack_texts(lengths, words.shape[1])
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    input_weight, state_weight, *biases = (cast(Tensor, getattr(gru, name)) for name in names)
    inputs = nn.functional.linear(words.flatten(0, 1).index_select(0, positions), input_weight, biases[0])
    states: Tensor = _LastStates.apply(inputs, state_weight, biases[1], batch_sizes.tolist())
    return states.index_select(0, order.argsort())


class _LastStates(Function):
    """Last states of N captions, longest first, from gate inputs (M, 3H) of M words; step t has `batch_sizes[t]`."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, batch_sizes: list[int]) -> Tensor:
        from pipeline.models.kernels import loops

        states = inputs.new_zeros(batch_sizes[0], weight.shape[1])
        saved = []
        for x in inputs.split(batch_sizes):
            h = states[: len(x)].clone()
            gates, candidate = torch.addmm(bias, h, weight.T), torch.empty_like(h)
            loops.gru_forward(*(each.detach().numpy() for each in (gates, x, h, candidate, states)))
            saved.append((gates, h, candidate))
        ctx.saved, ctx.batch_sizes = saved, batch_sizes
        ctx.save_for_backward(weight)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        from pipeline.models.kernels import loops

        (weight,) = ctx.saved_tensors
        d = d.clone(memory_format=torch.contiguous_format)
        grad_gates, grad_inputs = d.new_empty(2, sum(ctx.batch_sizes), weight.shape[0])
        parts = zip(ctx.saved, grad_gates.split(ctx.batch_sizes), grad_inputs.split(ctx.batch_sizes), strict=True)
        for (gates, h, candidate), grad_gate, grad_x in reversed(list(parts)):
            grad_state = d[: len(gates)]
            loops.gru_backward(*(each.numpy() for each in (gates, h, candidate, grad_state, grad_gate, grad_x)))
            grad_state.addmm_(grad_gate, weight)
        states = torch.cat([h for _, h, _ in ctx.saved])
        return grad_inputs, grad_gates.T @ states, grad_gates.sum(0), None
