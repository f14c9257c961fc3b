"""A GRU over captions of different lengths, of which only the last states are wanted; for the CPU."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def last_states(gru: nn.GRU, words: Tensor, lengths: Tensor) -> Tensor:
    """(N, H): the state of `gru` after the first `lengths` (N,) ≥ 1 of `words` (N, T, E).

    What `gru` gives, but captions that have ended cost nothing, and the gradient of the recurrent weight is made in one
    product of all time steps, not one per step.
    """
    order = lengths.argsort(descending=True)
    steps = torch.arange(int(lengths.max()))
    going = (lengths.unsqueeze(0) > steps.unsqueeze(1)).sum(1).tolist()
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    of_words, of_state, *biases = (cast(Tensor, getattr(gru, name)) for name in names)
    inputs = nn.functional.linear(words[order, : len(steps)].transpose(0, 1), of_words, biases[0])
    states = _LastStates.apply(inputs, of_state, biases[1], going)
    return states.index_select(0, order.argsort())


class _LastStates(Function):
    """From gate inputs (T, N, 3H), of which the first `going[t]` of N rows are read at step t."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, going: list[int]) -> Tensor:
        states = inputs.new_zeros(inputs.shape[1], weight.shape[1])
        saved = []
        for x, rows in zip(inputs, going, strict=True):
            before = states[:rows].clone()
            gates = torch.addmm(bias, before, weight.T)
            reset, update, candidate = gates.chunk(3, 1)
            own = candidate.clone()
            gates[:, : 2 * weight.shape[1]] += x[:rows, : 2 * weight.shape[1]]
            reset.sigmoid_()
            update.sigmoid_()
            new = torch.addcmul(x[:rows, 2 * weight.shape[1] :], reset, own).tanh_()
            torch.lerp(new, before, update, out=states[:rows])
            saved.append((before, reset, update, new, own))
        ctx.saved, ctx.going, ctx.shape = saved, going, inputs.shape
        ctx.save_for_backward(weight)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (weight,) = ctx.saved_tensors
        hidden = weight.shape[1]
        d, of_inputs = d.clone(), d.new_zeros(ctx.shape)
        of_gates = d.new_empty(sum(ctx.going), 3 * hidden)
        end = len(of_gates)
        for t in reversed(range(len(ctx.going))):
            rows, (before, reset, update, new, own) = ctx.going[t], ctx.saved[t]
            mine, x = of_gates[end - rows : end], of_inputs[t, :rows]
            of_state = d[:rows]
            of_new = of_state * (1 - update) * (1 - new * new)
            torch.mul(of_new * own, reset * (1 - reset), out=mine[:, :hidden])
            torch.mul(of_state * (before - new), update * (1 - update), out=mine[:, hidden : 2 * hidden])
            torch.mul(of_new, reset, out=mine[:, 2 * hidden :])
            x[:, : 2 * hidden] = mine[:, : 2 * hidden]
            x[:, 2 * hidden :] = of_new
            of_state.mul_(update).addmm_(mine, weight)
            end -= rows
        before_all = torch.cat([before for before, *_ in ctx.saved])
        return of_inputs, of_gates.T @ before_all, of_gates.sum(0), None
