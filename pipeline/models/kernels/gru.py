"""The last states of a GRU over captions of different lengths, on the CPU."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def last_gru_states(gru: nn.GRU, words: Tensor, lengths: Tensor) -> Tensor:
    """Compute the states (N, H) of `gru` after the first `lengths` (N,) ≥ 1 inputs of `words` (N, T, E).

    The result is that of `gru`, but ended captions cost nothing. The gradient of the recurrent weight is one product
    over all time steps, not one per step.
    """
    order = lengths.argsort(descending=True)
    going = (lengths > torch.arange(int(lengths.max())).unsqueeze(1)).sum(1).tolist()
    places = torch.cat([order[:rows] * words.shape[1] + t for t, rows in enumerate(going)])
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    of_words, of_state, *biases = (cast(Tensor, getattr(gru, name)) for name in names)
    inputs = nn.functional.linear(words.flatten(0, 1).index_select(0, places), of_words, biases[0])
    states: Tensor = _LastStates.apply(inputs, of_state, biases[1], going)
    return states.index_select(0, order.argsort())


class _LastStates(Function):
    """Last states of N captions from gate inputs (M, 3H); step t has the first `going[t]` captions."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, going: list[int]) -> Tensor:
        from pipeline.models.kernels import loops

        states = inputs.new_zeros(going[0], weight.shape[1])
        saved = []
        for x in inputs.split(going):
            before = states[: len(x)].clone()
            gates, new = torch.addmm(bias, before, weight.T), torch.empty_like(before)
            loops.gru_forward(*(each.detach().numpy() for each in (gates, x, before, new, states)))
            saved.append((gates, before, new))
        ctx.saved, ctx.going = saved, going
        ctx.save_for_backward(weight)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        from pipeline.models.kernels import loops

        (weight,) = ctx.saved_tensors
        d = d.clone(memory_format=torch.contiguous_format)
        of_gates, of_inputs = d.new_empty(2, sum(ctx.going), weight.shape[0])
        parts = zip(ctx.saved, of_gates.split(ctx.going), of_inputs.split(ctx.going), strict=True)
        for (gates, before, new), of_gate, of_x in reversed(list(parts)):
            of_state = d[: len(gates)]
            loops.gru_backward(*(each.numpy() for each in (gates, before, new, of_state, of_gate, of_x)))
            of_state.addmm_(of_gate, weight)
        states = torch.cat([before for _, before, _ in ctx.saved])
        return of_inputs, of_gates.T @ states, of_gates.sum(0), None
