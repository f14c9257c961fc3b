"""Adam and AdamW of torch.optim without the import of torch's compiler, which takes a second or more."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.adam import adam


class Adam:
    """Fused torch.optim.Adam with its defaults (β .9 and .999, ε 1e-8), with bit-equal results.

    With `weight_decay` the optimiser is torch.optim.AdamW, and parameters with fewer than two dimensions (biases and
    norms) do not decay.
    """

    def __init__(self, model: nn.Module, weight_decay: float = 0.0) -> None:
        self._parameters = dict(model.named_parameters())
        self._weight_decay = weight_decay
        self._state: dict[str, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self, learning_rate: float | Tensor) -> None:
        """Update the parameters that have a gradient, and clear their gradients.

        A learning rate on the device can differ between replays of a CUDA graph. Raises RuntimeError where a parameter
        has its first gradient while a graph is captured.
        """
        updated = {name: p for name, p in self._parameters.items() if p.grad is not None}
        new_names = updated.keys() - self._state.keys()
        if new_names and next(iter(updated.values())).is_cuda and torch.cuda.is_current_stream_capturing():
            # a replay of the graph would initialise the state again
            raise RuntimeError(
                f"parameter {min(new_names)} got its first gradient during the capture of a CUDA graph; run one step "
                "before the capture"
            )
        for name in new_names:
            self._state[name] = _initialise_state(updated[name])
        groups = {0.0: updated}
        if self._weight_decay:
            decaying = {name: p for name, p in updated.items() if p.dim() > 1}
            groups = {self._weight_decay: decaying, 0.0: {n: p for n, p in updated.items() if n not in decaying}}
        for weight_decay, group in groups.items():
            state = [self._state[name] for name in group]
            adam(
                list(group.values()),
                [p.grad for p in group.values() if p.grad is not None],
                [each["exp_avg"] for each in state],
                [each["exp_avg_sq"] for each in state],
                [],
                [each["step"] for each in state],
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=learning_rate,
                weight_decay=weight_decay,
                eps=1e-8,
                maximize=False,
                decoupled_weight_decay=self._weight_decay > 0,
            )
        for parameter in updated.values():
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state by `<parameter>:<quantity>`."""
        return {f"{name}:{quantity}": t for name, state in self._state.items() for quantity, t in state.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the state that `tensors` returned. Raises ValueError for parameters that the model lacks."""
        self._state = {}
        for key, value in tensors.items():
            name, _, quantity = key.rpartition(":")
            if name not in self._parameters:
                raise ValueError(f"the model has no parameter {name!r}; restore the state of an equal model")
            self._state.setdefault(name, {})[quantity] = value.to(self._parameters[name].device, copy=True)


def _initialise_state(parameter: nn.Parameter) -> dict[str, Tensor]:
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }
