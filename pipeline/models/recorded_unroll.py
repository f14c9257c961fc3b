"""Unroll of Att2in2 on a CPU whose graph is one autograd operation over all time steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import RolloutDropout
from pipeline.models.kernels.fast_att2in import select_weights
from pipeline.models.kernels.recurrence import StepKernels
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.models.kernels.tape import Tape, connect
from pipeline.models.steps import UnrollStep
from pipeline.protocols import RelaxingChannel
from pipeline.types import Batch


@dataclass
class InputDistributions:
    """Distributions of one step that are inputs of the next step."""

    full: Tensor  # (K,): rows of the distributions in their own step
    states: Tensor  # (K, H): states from which they were computed, after dropout
    masks: Tensor | None  # (K, H): dropout of these states
    logits: Tensor  # (K, V+1), the leaf of the graph of `soft`
    soft: Tensor  # (K, V+1)
    kept: Tensor  # (K',): distributions whose captions are in the next step
    rows: Tensor  # (K',): rows of these captions in the next step

    def select(self, rows: Tensor, captions: int) -> None:
        """Keep the distributions of the selected `rows` (m,) of n = `captions` captions."""
        new_rows = torch.full((captions,), -1).index_copy_(0, rows, torch.arange(len(rows)))[self.rows]
        remaining = (new_rows >= 0).nonzero().squeeze(1)
        self.kept, self.rows = self.kept[remaining], new_rows[remaining]


class RecordedUnroll:
    """Unroll of `plain` for captions that pass a gradient to the speaker.

    Steps are computed without a graph, and recorded. `connect` then gives the states and the fed distributions of all
    steps a graph at once.
    """

    def __init__(self, plain: Att2in, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> None:
        self.plain, self.drop, self.width = plain, drop, width
        self.word, self.logit = SharedWeight(plain.word.weight), SharedWeight(plain.logit.weight)
        self._output = self.logit.weight.T.contiguous()
        self._weights = select_weights(plain, drop(encoded))
        self._images = torch.arange(len(batch) * width) // width
        rows = len(self._images) * plain.max_words
        self._tape = Tape(StepKernels(self._weights, plain.mask(batch)), rows)
        self._h = self._c = encoded.new_zeros(len(self._images), plain.hidden)
        self._parents: Tensor | None = None  # rows of the captions in the step before; None: all rows of that step
        self._inputs = encoded.new_empty(rows, plain.word.embedding_dim)  # inputs of all steps, after ReLU and dropout
        self._tokens: list[Tensor] = []  # input tokens of each step
        self._masks: list[Tensor] = []  # dropout of each step's states
        self._next_tokens: Tensor
        self._next_fed: InputDistributions | None = None
        self._fed: dict[int, InputDistributions] = {}  # distributions by the step whose inputs they are

    @torch.no_grad()
    def step(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the states (n, H) of one step, before and after dropout."""
        kernels, step = self._tape.kernels, self._tape.record(self._images, self._h, self._c, self._parents)
        torch.addmm(kernels.weights.bias, self._compute_inputs(rows), kernels.transposed.word, out=step.gates)
        kernels.step(step)
        self._h, self._c, self._parents = step.h, step.c, None
        if not self.drop.probability:
            return step.h, step.h
        self._masks.append(self.drop.mask(step.h, rows, self.width))
        return step.h, step.h * self._masks[-1]

    @torch.no_grad()
    def compute_logits(self, states: Tensor) -> Tensor:
        """Compute the logits (n, V+1) of states (n, H) after dropout, without a graph."""
        return torch.addmm(self.plain.logit.bias, states, self._output)

    def select(self, rows: Tensor, same_images: bool = False) -> None:
        """Keep the captions `rows` (m,), in that order."""
        if self._next_fed is not None:
            self._next_fed.select(rows, len(self._images))
        self._parents = rows if self._parents is None else self._parents[rows]
        self._h, self._c, self._images = self._h[rows], self._c[rows], self._images[rows]
        self._next_tokens = self._next_tokens[rows]

    def set_inputs(
        self, tokens: Tensor, step: UnrollStep | None = None, channel: RelaxingChannel | None = None
    ) -> None:
        """Set the next inputs: `tokens` (n,), or in the rows `step.full` the distributions of `step`."""
        self._next_tokens, self._next_fed = tokens, None
        if step is None:
            return
        assert channel is not None
        full, noise = step.full, step.choice.noise
        with torch.enable_grad():
            logits = step.logits[full].requires_grad_()
            soft = channel.distribution(logits, None if noise is None else noise[full], step.choice.index[full])
        step.soft, masks = soft.detach(), self._masks[-1][full] if self._masks else None
        self._next_fed = InputDistributions(full, step.states[full], masks, logits, soft, torch.arange(len(full)), full)

    def connect(self, steps: Sequence[UnrollStep]) -> None:
        """Give the states and fed distributions of `steps` a graph."""
        nodes = self.word.graph_node, self.logit.graph_node, self.plain.logit.bias
        values = [self._tape.steps.h, *(fed.soft.detach() for fed in self._fed.values())]
        states, *distributions = connect(values, self._compute_gradients, [*self._weights, *nodes])
        if self._masks:
            states = states * torch.cat(self._masks)
        for step, part in zip(steps, states.split([len(step.rows) for step in steps]), strict=True):
            step.states = part
        for t, soft in zip(self._fed, distributions, strict=True):
            steps[t - 1].soft = soft

    def _compute_inputs(self, rows: Tensor) -> Tensor:
        """Compute the inputs (n, E) of the step that was recorded last, after ReLU and dropout."""
        words, (start, stop) = self.word.weight, self._tape.ends[-2:]
        inputs = self._inputs[start:stop]
        torch.index_select(words, 0, self._next_tokens, out=inputs)
        if (fed := self._next_fed) is not None:
            inputs.index_copy_(0, fed.rows, fed.soft.detach()[fed.kept] @ words[: fed.soft.shape[1]])
            self._fed[len(self._tokens)] = fed
        self._tokens.append(self._next_tokens)
        inputs.relu_()
        return inputs.mul_(self.drop.mask(inputs, rows, self.width)) if self.drop.probability else inputs

    def _compute_gradients(self, grad_h: Tensor, *grad_soft: Tensor) -> tuple[Tensor, ...]:
        """Compute the gradients of the inputs of `connect`."""
        tape, inputs = self._tape, self._inputs[: self._tape.ends[-1]]
        grad_inputs, grad_bias = torch.empty_like(inputs), torch.zeros_like(self.plain.logit.bias)
        grad_by_step = dict(zip(self._fed, grad_soft, strict=True))

        def differentiate_inputs(rows: slice, grad_gates: Tensor) -> Tensor:
            torch.mm(grad_gates[rows], tape.kernels.weights.word, out=grad_inputs[rows])
            return grad_inputs[rows].mul_(inputs[rows] > 0).div_(1 - self.drop.probability)

        def add_mixture_gradients(t: int, d_h: Tensor, grad_gates: Tensor) -> None:
            if (fed := self._fed.get(t + 1)) is None:
                return
            d_inputs = differentiate_inputs(slice(*tape.ends[t + 1 : t + 3]), grad_gates)
            d_mixtures = d_inputs[fed.rows]
            d_inputs.index_fill_(0, fed.rows, 0)  # no gradient of the tokens in these rows
            d_states, d_logits = self._differentiate_mixtures(fed, d_mixtures, grad_by_step[t + 1])
            grad_bias.add_(d_logits.sum(0))
            d_h.index_add_(0, fed.full, d_states)

        gradients, grad_gates = tape.backward(grad_h, inputs, add_mixture_gradients if self._fed else None)
        if self._fed:
            for t in range(len(self._tokens)):
                if t not in self._fed:
                    differentiate_inputs(slice(*tape.ends[t : t + 2]), grad_gates)
        else:
            differentiate_inputs(slice(None), grad_gates)
        self.word.add_rows(torch.cat(self._tokens), grad_inputs)
        return *gradients, grad_h.new_empty(0), grad_h.new_empty(0), grad_bias

    def _differentiate_mixtures(
        self, fed: InputDistributions, d_mixtures: Tensor, d_soft: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of states before dropout (K, H), and of logits (K, V+1), of fed distributions.

        `d_mixtures` (K', E) are the gradients of the mixtures in the next step, and `d_soft` (K, V+1) the gradients
        of other uses.
        """
        soft = fed.soft.detach()
        d_soft = d_soft.index_add(0, fed.kept, d_mixtures @ self.word.weight[: soft.shape[1]].T)
        (d_logits,) = torch.autograd.grad(fed.soft, fed.logits, d_soft, retain_graph=True)
        self.word.add_mixture(soft[fed.kept], d_mixtures)
        self.logit.add_product(d_logits, fed.states)
        d_states = d_logits @ self.logit.weight
        return d_states if fed.masks is None else d_states * fed.masks, d_logits
