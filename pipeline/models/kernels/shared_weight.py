"""Weights used at every step of an unroll, with gradients computed from many rows at once.

Autograd would compute a gradient of the weight's size (the vocabulary) at each step and add it up. This is most of a
step's memory traffic. Here each use records the factors of its gradient. Factors of products are multiplied once they
have ROWS rows, and all others at the end. The result equals that of autograd, up to the order of sums.

Such a graph must be differentiated for all parameters of its module at once, as in a training step.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from pipeline.channels.hard import log_partition
from pipeline.runtime import devices

ROWS = 256  # rows of vocabulary size that are processed at a time


class SharedWeight:
    """Weight (V, E) with three uses: rows for tokens, mixtures of rows, and products with all rows.

    An autograd operation of another module takes `graph_node` as an input, and records its uses' gradients itself.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.detach()
        self._uses = _Uses(self.weight)
        self.graph_node: Tensor = _Weight.apply(weight, self._uses)

    def rows(self, ids: Tensor) -> Tensor:
        """Return the rows (N, E) of `ids` (N,)."""
        return cast(Tensor, _Rows.apply(self.graph_node, self._uses, ids))

    def mixture(self, shares: Tensor) -> Tensor:
        """Compute mixtures (N, E) of the first V' rows with the weights `shares` (N, V')."""
        return cast(Tensor, _Mixture.apply(self.graph_node, self._uses, shares))

    def straight_through(self, shares: Tensor) -> Tensor:
        """Return zeros (N, E), to be added to rows; their gradient with respect to `shares` (N, V') is a mixture's."""
        return cast(Tensor, _StraightThrough.apply(shares, self._uses.weight[: shares.shape[1]]))

    def product(self, x: Tensor, bias: Tensor, value: Tensor) -> Tensor:
        """Return `value` (N, V), the known product of `x` (N, E) and the transposed weight plus `bias` (V,)."""
        return cast(Tensor, _Product.apply(self.graph_node, self._uses, x, bias, value))

    def log_prob(self, x: Tensor, bias: Tensor, logits: Tensor, index: Tensor) -> Tensor:
        """Compute the log-probabilities (N,) of the tokens `index` (N,) from the `logits` (N, V) of `product`."""
        return cast(Tensor, _LogProb.apply(self.graph_node, self._uses, x, bias, logits, index, False)[0])

    def log_prob_and_entropy(self, x: Tensor, bias: Tensor, logits: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the result of `log_prob` (N,) and the entropies (N,) of the distributions, in nats."""
        log_prob, entropy = _LogProb.apply(self.graph_node, self._uses, x, bias, logits, index, True)
        return log_prob, entropy

    def add_rows(self, ids: Tensor, d: Tensor) -> None:
        """Record the gradient `d` (N, E) of the rows `ids` (N,)."""
        self._uses.words.append((ids, d))

    def add_mixture(self, shares: Tensor, d: Tensor) -> None:
        """Record the gradient `d` (N, E) of mixtures with the weights `shares` (N, V')."""
        self._uses.mixtures.append((shares, d))

    def add_product(self, d: Tensor, x: Tensor) -> None:
        """Record the gradient `d` (N, V) of products with `x` (N, E)."""
        self._uses.add_product(d, x)


class _Uses:
    """Recorded uses of a weight (V, E), with the factors of its gradient."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.words: list[tuple[Tensor, Tensor]] = []  # ids (N,), gradients (N, E)
        self.mixtures: list[tuple[Tensor, Tensor]] = []  # shares (N, V'), gradients (N, E)
        self.products: Tensor | None = None  # (V, E): gradient of the products so far, without `pending`
        # gradients (n, V) and x (n, E) of products with few rows, which are merged into one product
        self.pending: list[tuple[Tensor, Tensor]] = []

    def add_product(self, d: Tensor, x: Tensor) -> None:
        """Record a product of `x` (N, E) with the gradient `d` (N, V)."""
        if len(d) < ROWS:
            self.pending.append((d, x))
            if sum(len(part) for part, _ in self.pending) < ROWS:
                return
            d, x = self._take_pending()
        if self.products is None:
            self.products = torch.mm(d.T, x)
        else:
            torch.addmm(self.products, d.T, x, out=self.products)

    def _take_pending(self) -> tuple[Tensor, Tensor]:
        d, x = (torch.cat(parts) for parts in zip(*self.pending, strict=True))
        self.pending = []
        return d, x

    def compute_gradient(self) -> Tensor:
        """Compute the gradient (V, E) of the weight over all uses, and clear the recorded uses."""
        if self.pending:
            d, x = self._take_pending()
            self.products = d.T @ x if self.products is None else self.products.addmm_(d.T, x)
        gradient = torch.zeros_like(self.weight) if self.products is None else self.products
        if self.mixtures:
            shares, d = (torch.cat(parts) for parts in zip(*self.mixtures, strict=True))
            torch.addmm(gradient[: shares.shape[1]], shares.T, d, out=gradient[: shares.shape[1]])
        if self.words:
            ids, d = (torch.cat(parts) for parts in zip(*self.words, strict=True))
            gradient.index_add_(0, ids, d)
        self.words, self.mixtures, self.products = [], [], None
        return gradient


class _Weight(Function):
    """Empty tensor that represents the weight in the graph, so that no gradient of the weight's size is passed on."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, uses: _Uses) -> Tensor:
        ctx.uses = uses
        return weight.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_node: Tensor) -> tuple[Tensor, None]:
        return ctx.uses.compute_gradient(), None


class _Rows(Function):
    @staticmethod
    def forward(ctx: Any, graph_node: Tensor, uses: _Uses, ids: Tensor) -> Tensor:
        ctx.uses, ctx.ids = uses, ids
        return uses.weight[ids]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, None]:
        ctx.uses.words.append((ctx.ids, d))
        return d.new_empty(0), None, None


class _Mixture(Function):
    @staticmethod
    def forward(ctx: Any, graph_node: Tensor, uses: _Uses, shares: Tensor) -> Tensor:
        ctx.uses = uses
        ctx.save_for_backward(shares)
        return shares @ uses.weight[: shares.shape[1]]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, Tensor | None]:
        (shares,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            ctx.uses.mixtures.append((shares, d))
        grad_x = d @ ctx.uses.weight[: shares.shape[1]].T if ctx.needs_input_grad[2] else None
        return d.new_empty(0), None, grad_x


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, graph_node: Tensor, uses: _Uses, x: Tensor, bias: Tensor, value: Tensor) -> Tensor:
        ctx.uses = uses
        ctx.save_for_backward(x)
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, Tensor | None, Tensor, None]:
        (x,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            ctx.uses.add_product(d, x)
        grad_x = d @ ctx.uses.weight if ctx.needs_input_grad[2] else None
        return d.new_empty(0), None, grad_x, d.sum(0), None


class _StraightThrough(Function):
    """Zeros in the forward pass; the gradient of a mixture of the weight's rows in the backward pass."""

    @staticmethod
    def forward(ctx: Any, shares: Tensor, weight: Tensor) -> Tensor:
        ctx.weight = weight
        return shares.new_zeros(len(shares), weight.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None]:
        return d @ ctx.weight.T, None


class _LogProb(Function):
    """Log-probabilities and entropies; entropies that are not requested are zeros."""

    @staticmethod
    def forward(
        ctx: Any,
        graph_node: Tensor,
        uses: _Uses,
        x: Tensor,
        bias: Tensor,
        logits: Tensor,
        index: Tensor,
        entropies: bool,
    ) -> tuple[Tensor, Tensor]:
        total = log_partition(logits)
        entropy = torch.zeros_like(total)
        if entropies:
            parts = zip(logits.split(ROWS), total.split(ROWS), strict=True)
            log_p = (rows - log_z.unsqueeze(1) for rows, log_z in parts)
            entropy = torch.cat([-(rows.exp() * rows).sum(-1) for rows in log_p])
        ctx.uses, ctx.entropies = uses, entropies
        ctx.save_for_backward(x, logits, index, total, entropy)
        return logits.gather(1, index.unsqueeze(1)).squeeze(1) - total, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor, grad_entropy: Tensor) -> tuple[Tensor | None, ...]:
        # ROWS tokens at a time, so that tensors of the vocabulary's size stay in the cache
        grad_x, grad_bias = [], d.new_zeros(ctx.saved_tensors[1].shape[1])
        saved = (t.split(ROWS) for t in (*ctx.saved_tensors, d, grad_entropy))
        for x, logits, index, total, entropy, d_log_prob, d_entropy in zip(*saved, strict=True):
            grad_logits = _compute_logit_gradient(
                logits, index, total, d_log_prob, entropy, d_entropy if ctx.entropies else None, grad_bias
            )
            grad_x.append(grad_logits @ ctx.uses.weight)
            if ctx.needs_input_grad[0]:
                ctx.uses.add_product(grad_logits, x)
        return d.new_empty(0), None, torch.cat(grad_x), grad_bias, None, None, None


def _compute_logit_gradient(
    logits: Tensor,
    index: Tensor,
    total: Tensor,
    d: Tensor,
    entropy: Tensor,
    d_entropy: Tensor | None,
    grad_bias: Tensor,
) -> Tensor:
    """Compute the logits' gradient (n, V) from the gradients `d` of log-probabilities and `d_entropy` of entropies H.

    An entropy's gradient is −p (log p + H). The sum over rows is added to `grad_bias` (V,).
    """
    if d_entropy is None and devices.is_synchronous(logits.device):
        from pipeline.models.kernels import loops  # imported here: importing numba takes 0.3 s

        grad_logits = torch.empty_like(logits)
        loops.log_prob_backward(
            *(each.contiguous().numpy() for each in (logits, index, total, d)), grad_logits.numpy(), grad_bias.numpy()
        )
        return grad_logits
    log_p = logits - total.unsqueeze(1)
    grad_logits = log_p.exp().mul_(-d.unsqueeze(1))
    if d_entropy is not None:
        grad_logits -= log_p.exp().mul_(log_p.add_(entropy.unsqueeze(1))).mul_(d_entropy.unsqueeze(1))
    grad_logits.scatter_add_(1, index.unsqueeze(1), d.unsqueeze(1))
    grad_bias += grad_logits.sum(0)
    return grad_logits
