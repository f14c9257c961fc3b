"""Att2in2 on a CPU by matrix products and compiled loops; captions of one image share its regions."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.att2in import Att2in
from pipeline.models.decoder import Decoder, RolloutDropout
from pipeline.models.kernels.recurrence import Step, StepKernels, StepWeights
from pipeline.models.kernels.shared_weight import SharedWeight
from pipeline.models.kernels.tape import Tape, connect
from pipeline.types import Batch, make_caption_mask


@dataclass(frozen=True)
class FastState:
    """Decoder state of n captions."""

    h: Tensor  # (n, H)
    c: Tensor  # (n, H)
    rows: Tensor  # (n,): indices of these captions
    images: Tensor  # (n,): indices of their images in the batch
    width: int
    drop: RolloutDropout
    kernels: StepKernels

    def allocate_step(self) -> Step:
        """Return the tensors of the next step, with the images and previous states of these captions."""
        step = Step.allocate(self.kernels.weights, len(self.rows))
        return step._replace(images=self.images, previous_h=self.h, previous_c=self.c)


class FastAtt2in:
    """Fast form of the decoder `plain`, with the same results up to rounding.

    Single steps have no gradient; teacher forcing and `RecordedUnroll` have a gradient.
    """

    def __init__(self, plain: Att2in) -> None:
        self.plain = plain

    @torch.no_grad()
    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> FastState:
        kernels = StepKernels(select_weights(self.plain, drop(encoded)), self.plain.mask(batch))
        rows = torch.arange(len(batch) * width)
        zero = encoded.new_zeros(len(rows), self.plain.hidden)
        return FastState(zero, zero, rows, rows // width, width, drop, kernels)

    @torch.no_grad()
    def step(self, inputs: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        step, kernels = state.allocate_step(), state.kernels
        inputs = state.drop(F.relu(inputs), state.rows, state.width)
        torch.addmm(kernels.weights.bias, inputs, kernels.transposed.word, out=step.gates)
        kernels.step(step)
        return step.h, replace(state, h=step.h, c=step.c)

    def select(self, state: FastState, rows: Tensor, same_images: bool = False) -> FastState:
        subset = replace(state, h=state.h[rows], c=state.c[rows])
        return subset if same_images else replace(subset, rows=state.rows[rows], images=state.images[rows])

    def teacher_force(self, batch: Batch, encoded: Tensor, drop: RolloutDropout) -> tuple[Tensor, Tensor]:
        """Run teacher forcing like `plain`, without computation after a caption's EOS."""
        tokens, plain = batch.captions, self.plain
        columns = tokens.shape[1]
        order, batch_sizes = _order_by_length(make_caption_mask(tokens))
        positions = torch.cat([order[:rows] * columns + t for t, rows in enumerate(batch_sizes)])
        weights = select_weights(plain, drop(encoded))
        embedded = SharedWeight(plain.word.weight).rows(plain.shift_right(tokens).flatten()[positions])
        inputs = drop(F.relu(embedded), positions, columns)
        with torch.no_grad():
            tape = _record_steps(StepKernels(weights, plain.mask(batch)), inputs, order, batch_sizes)

        def compute_gradients(grad_h: Tensor) -> tuple[Tensor, ...]:
            gradients, grad_gates = tape.backward(grad_h, inputs.detach())
            return grad_gates @ tape.kernels.weights.word, *gradients

        (hidden,) = connect([tape.steps.h], compute_gradients, [inputs, *weights])
        return hidden, positions


class InferenceAtt2in(Decoder[FastState]):
    """Inference-optimised copy of `plain` with frozen weights and without dropout.

    A table (V + 2, 5H) of all tokens' gate inputs is computed first, which saves time over many batches. Large
    products use `dtype`. In bfloat16 they take half the time on processors that support it, and some captions differ.
    """

    requires_grad = False

    @torch.no_grad()
    def __init__(self, plain: Att2in, dtype: torch.dtype | None = None) -> None:
        """Compute the tables of `plain`; `dtype` None means the dtype of the weights."""
        super().__init__(plain.vocabulary, plain.hidden, plain.max_words, 0.0, plain.arguments)
        self.fast, self.region, self.null = FastAtt2in(plain), plain.region, plain.null
        self.weight_dtype, self.dtype = plain.word.weight.dtype, dtype or plain.word.weight.dtype
        self.logit = plain.logit if self.dtype == self.weight_dtype else copy.deepcopy(plain.logit).to(self.dtype)
        gates = F.linear(F.relu(plain.word.weight), plain.from_word.weight, _sum_biases(plain))
        self.word = nn.Embedding.from_pretrained(gates)
        self.state_weight = torch.cat([plain.from_state.weight, plain.query.weight]).to(self.dtype)
        self.eval()

    def begin(self, batch: Batch, encoded: Tensor, drop: RolloutDropout, width: int) -> FastState:
        return self.fast.begin(batch, encoded, drop, width)

    def step(self, inputs: Tensor, state: FastState) -> tuple[Tensor, FastState]:
        products = (state.h.to(self.dtype) @ self.state_weight.T).to(self.weight_dtype)
        gates, query = products.tensor_split([5 * self.hidden], 1)
        step = state.allocate_step()._replace(gates=gates + inputs, query=query.contiguous())
        state.kernels.finish(step)
        return step.h, replace(state, h=step.h, c=step.c)

    def logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.logit(hidden.to(self.dtype)).to(self.weight_dtype)
        return logits

    def select(self, state: FastState, rows: Tensor, same_images: bool = False) -> FastState:
        return self.fast.select(state, rows, same_images)


def select_weights(plain: Att2in, regions: Tensor) -> StepWeights:
    """Return the weights of a step and the attention's keys, with a graph, for `regions` (B, R, H) after dropout."""
    return StepWeights(
        # biases are merged: the query's into the keys, those of word, state and regions into the gates
        keys=F.linear(regions, plain.key.weight, plain.key.bias + plain.query.bias),
        regions=regions,
        attention=plain.weight.weight[0],
        word=plain.from_word.weight,
        state=plain.from_state.weight,
        query=plain.query.weight,
        attended=plain.from_regions.weight,
        bias=_sum_biases(plain),
    )


def _record_steps(kernels: StepKernels, inputs: Tensor, order: Tensor, batch_sizes: list[int]) -> Tape:
    """Record the steps of N texts in the order `order` (N,); step t has the first `batch_sizes[t]` texts."""
    weights, tape = kernels.weights, Tape(kernels, len(inputs))
    h = c = inputs.new_zeros(len(order), weights.state.shape[1])
    torch.addmm(weights.bias, inputs, kernels.transposed.word, out=tape.gates)
    for rows in batch_sizes:
        step = tape.record(order[:rows], h[:rows], c[:rows], None)
        kernels.step(step)
        h, c = step.h, step.c
    return tape


def _sum_biases(plain: Att2in) -> Tensor:
    """Compute the sum of all biases of the gates, (5H,)."""
    return plain.from_word.bias + plain.from_state.bias + F.pad(plain.from_regions.bias, (3 * plain.hidden, 0))


def _order_by_length(mask: Tensor) -> tuple[Tensor, list[int]]:
    """Return the order of captions by length (N,), longest first, and the number of captions with a token per step."""
    return mask.sum(1).argsort(descending=True, stable=True), [rows for rows in mask.sum(0).tolist() if rows]
