"""Losses of methods written out, and comparisons of gradients."""

import torch
from torch import Tensor

from pipeline.composition.method import Method
from pipeline.types import Batch, Message


def compute_likelihood_loss(advantage: Tensor, message: Message) -> Tensor:
    """Return −Σ advantage · log p averaged over all tokens of the batch with EOS; advantages are (N,) or (N, T)."""
    total = torch.zeros(())
    for n, row in enumerate(message.mask):
        for t in row.nonzero().flatten().tolist():
            weight = advantage[n] if advantage.dim() == 1 else advantage[n, t]
            total = total - weight.detach() * message.log_probs[n, t]
    return total / int(message.mask.sum())


def compute_gradients(loss: Tensor, agent: torch.nn.Module) -> list[Tensor]:
    """Return the gradient of each parameter of `agent`, zeros where the loss does not depend on it."""
    parameters = list(agent.parameters())
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def assert_same_gradients(loss: Tensor, expected: Tensor, agent: torch.nn.Module, zero: bool = False) -> None:
    """Assert that both losses have equal values and gradients on `agent`, all zero if and only if `zero`."""
    torch.testing.assert_close(loss.detach(), expected.detach().to(loss.dtype))
    found = compute_gradients(loss, agent)
    for left, right in zip(found, compute_gradients(expected, agent), strict=True):
        torch.testing.assert_close(left, right)
    assert all(not g.any() for g in found) is zero


def compute_error_ratio(estimates: Tensor, truth: Tensor) -> float:
    """Return the squared distance of the mean of gradients (R, P) from the truth (P,), divided by its expectation.

    The expectation is that of unbiased estimates, whose mean differs from the truth by sampling alone.
    """
    return float((estimates.mean(0) - truth).square().sum() / (estimates.var(0).sum() / len(estimates)))


def compute_losses(method: Method, batch: Batch, seed: int = 1) -> dict[str, Tensor]:
    """Return the losses of one step, with the agents in the modes that training gives them."""
    roles = method.freeze(batch.step)
    for role, agent in method.agents.items():
        agent.train(role in roles)
    return method.step(batch, seed)[0]
