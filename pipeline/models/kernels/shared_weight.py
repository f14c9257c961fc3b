"""What an unroll uses at every time step, its gradients made once.

Autograd would make, at each step, a gradient as large as the weight (the vocabulary) or the images' regions, and add it
up: most of a step's memory traffic. Here each use notes what its gradient is made of, and when all uses have theirs,
that of the shared tensor is made in one product. What comes out is what autograd computes, up to the order of sums.

A graph with these in it is differentiated for all parameters of its module at once, as a training step does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from pipeline.channels.words import log_total
from pipeline.runtime import devices

ROWS = 256  # of the vocabulary's size at a time


class SharedWeight:
    """A weight (V, E): its rows for words, mixtures of its rows, and products with all of them."""

    def __init__(self, weight: Tensor) -> None:
        self._uses = _Uses(weight.detach())
        self._ticket: Tensor = _Weight.apply(weight, self._uses)

    def rows(self, ids: Tensor) -> Tensor:
        """(N, E): the rows of `ids` (N,)."""
        return _Rows.apply(self._ticket, self._uses, ids)

    def mixture(self, shares: Tensor) -> Tensor:
        """(N, E): sums of the first V' rows, each `shares` (N, V') times."""
        return _Mixture.apply(self._ticket, self._uses, shares)

    def straight_through(self, shares: Tensor) -> Tensor:
        """Zeros (N, E), to be added to rows: backward, `shares` (N, V') get what a mixture's would."""
        return _Unheard.apply(shares, self._uses.weight[: shares.shape[1]])

    def product(self, x: Tensor, bias: Tensor, value: Tensor) -> Tensor:
        """(N, V): `x` (N, E) times the transposed weight, plus `bias` (V,): known to be `value`, and not computed."""
        return _Product.apply(self._ticket, self._uses, x, bias, value)

    def log_prob(self, x: Tensor, bias: Tensor, value: Tensor, index: Tensor) -> Tensor:
        """(N,): log-probabilities of the words `index` (N,) where `product` gives the logits."""
        return _LogProb.apply(self._ticket, self._uses, x, bias, value, index, False)[0]

    def log_prob_and_entropy(self, x: Tensor, bias: Tensor, value: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) each: what `log_prob` gives, and the entropies of those distributions in nats."""
        return _LogProb.apply(self._ticket, self._uses, x, bias, value, index, True)


class _Uses:
    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.words: list[tuple[Tensor, Tensor]] = []  # ids (N,), gradients (N, E)
        self.mixtures: list[tuple[Tensor, Tensor]] = []  # shares (N, V'), gradients (N, E)
        self.products: Tensor | None = None  # (V, E): the gradient of all products so far, but for
        self.thin: list[tuple[Tensor, Tensor]] = []  # gradients (n, V) and x (n, E) of few rows, to be one product

    def add_product(self, d: Tensor, x: Tensor) -> None:
        """Note a product of `x` (N, E), from its gradient `d` (N, V)."""
        if len(d) < ROWS:
            self.thin.append((d, x))
            if sum(len(part) for part, _ in self.thin) < ROWS:
                return
            d, x = self._together()
        if self.products is None:
            self.products = torch.mm(d.T, x)
        else:
            torch.addmm(self.products, d.T, x, out=self.products)

    def _together(self) -> tuple[Tensor, Tensor]:
        d, x = (torch.cat(parts) for parts in zip(*self.thin, strict=True))
        self.thin = []
        return d, x

    def gradient(self) -> Tensor:
        """Of the weight, from all uses; they are forgotten."""
        if self.thin:
            d, x = self._together()
            self.products = d.T @ x if self.products is None else self.products.addmm_(d.T, x)
        found = torch.zeros_like(self.weight) if self.products is None else self.products
        if self.mixtures:
            shares, d = (torch.cat(parts) for parts in zip(*self.mixtures, strict=True))
            torch.addmm(found[: shares.shape[1]], shares.T, d, out=found[: shares.shape[1]])
        if self.words:
            ids, d = (torch.cat(parts) for parts in zip(*self.words, strict=True))
            found.index_add_(0, ids, d)
        self.words, self.mixtures, self.products = [], [], None
        return found


class _Weight(Function):
    """The weight as its uses know it: an empty tensor, so that nothing of its size is handed around."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, uses: _Uses) -> Tensor:
        ctx.uses = uses
        return weight.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, nothing: Tensor) -> tuple[Tensor, None]:
        return ctx.uses.gradient(), None


class _Rows(Function):
    @staticmethod
    def forward(ctx: Any, ticket: Tensor, uses: _Uses, ids: Tensor) -> Tensor:
        ctx.uses, ctx.ids = uses, ids
        return uses.weight[ids]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, None]:
        ctx.uses.words.append((ctx.ids, d))
        return d.new_empty(0), None, None


class _Mixture(Function):
    @staticmethod
    def forward(ctx: Any, ticket: Tensor, uses: _Uses, shares: Tensor) -> Tensor:
        ctx.uses = uses
        ctx.save_for_backward(shares)
        return shares @ uses.weight[: shares.shape[1]]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, Tensor | None]:
        (shares,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            ctx.uses.mixtures.append((shares, d))
        back = d @ ctx.uses.weight[: shares.shape[1]].T if ctx.needs_input_grad[2] else None
        return d.new_empty(0), None, back


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, ticket: Tensor, uses: _Uses, x: Tensor, bias: Tensor, value: Tensor) -> Tensor:
        ctx.uses = uses
        ctx.save_for_backward(x)
        return value.view_as(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, Tensor | None, Tensor, None]:
        (x,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            ctx.uses.add_product(d, x)
        back = d @ ctx.uses.weight if ctx.needs_input_grad[2] else None
        return d.new_empty(0), None, back, d.sum(0), None


class _Unheard(Function):
    """Nothing forward; backward, as if a mixture of the table's rows had been heard instead of one of them."""

    @staticmethod
    def forward(ctx: Any, shares: Tensor, weight: Tensor) -> Tensor:
        ctx.weight = weight
        return shares.new_zeros(len(shares), weight.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None]:
        return d @ ctx.weight.T, None


class _LogProb(Function):
    """Log-probabilities, and entropies if asked for, else zeros."""

    @staticmethod
    def forward(
        ctx: Any, ticket: Tensor, uses: _Uses, x: Tensor, bias: Tensor, logits: Tensor, index: Tensor, entropies: bool
    ) -> tuple[Tensor, Tensor]:
        total = log_total(logits)
        entropy = torch.zeros_like(total)
        if entropies:
            parts = zip(logits.split(ROWS), total.split(ROWS), strict=True)
            log_p = (part - of.unsqueeze(1) for part, of in parts)
            entropy = torch.cat([-(part.exp() * part).sum(-1) for part in log_p])
        ctx.uses, ctx.entropies = uses, entropies
        ctx.save_for_backward(x, logits, index, total, entropy)
        return logits.gather(1, index.unsqueeze(1)).squeeze(1) - total, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor, of_entropy: Tensor) -> tuple[Tensor | None, ...]:
        # some captions' words at a time: what is as large as the vocabulary stays in the cache
        back, of_bias = [], d.new_zeros(ctx.saved_tensors[1].shape[1])
        saved = (t.split(ROWS) for t in (*ctx.saved_tensors, d, of_entropy))
        for x, logits, index, total, entropy, part, rise in zip(*saved, strict=True):
            slope = _slope(logits, index, total, part, entropy, rise if ctx.entropies else None, of_bias)
            back.append(slope @ ctx.uses.weight)
            if ctx.needs_input_grad[0]:
                ctx.uses.add_product(slope, x)
        return d.new_empty(0), None, torch.cat(back), of_bias, None, None, None


def _slope(
    logits: Tensor, index: Tensor, total: Tensor, d: Tensor, entropy: Tensor, rise: Tensor | None, of_bias: Tensor
) -> Tensor:
    """(n, V): the gradient of logits whose words' log-probabilities have `d`, and entropies H `rise`.

    That of an entropy is −p (log p + H). Its sum is added to `of_bias` (V,).
    """
    if rise is None and devices.synchronous(logits.device):
        from pipeline.models.kernels import loops  # here: numba takes a second to import

        slope = torch.empty_like(logits)
        loops.slope(*(each.contiguous().numpy() for each in (logits, index, total, d)), slope.numpy(), of_bias.numpy())
        return slope
    log_p = logits - total.unsqueeze(1)
    slope = log_p.exp().mul_(-d.unsqueeze(1))
    if rise is not None:
        slope -= log_p.exp().mul_(log_p.add_(entropy.unsqueeze(1))).mul_(rise.unsqueeze(1))
    slope.scatter_add_(1, index.unsqueeze(1), d.unsqueeze(1))
    of_bias += slope.sum(0)
    return slope
