"""Networks on the speaker's hidden states: a critic as a learned baseline, and learned control variates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.models.constructor_arguments import collect_constructor_arguments


class Critic(nn.Module):
    """MLP with one hidden layer on the speaker's hidden states (Liu et al. 2017; Ranzato et al. 2016)."""

    def __init__(self, state: int, hidden: int = 512) -> None:
        super().__init__()
        self.arguments = collect_constructor_arguments(locals())
        self.inner = nn.Linear(state, hidden)
        self.outer = nn.Linear(hidden, 1)

    def forward(self, states: Tensor) -> Tensor:
        """Predict the score (…) of captions from `states` (…, H)."""
        values: Tensor = self.outer(F.relu(self.inner(states))).squeeze(-1)
        return values


class ControlVariate(nn.Module):
    """MLP on a state and a relaxed token, with a learned temperature (RELAX, Grathwohl et al. 2018).

    Its initial output is 0.
    """

    def __init__(self, state: int, words: int, hidden: int) -> None:
        super().__init__()
        self.from_state = nn.Linear(state, hidden)
        self.from_word = nn.Linear(words, hidden, bias=False)
        self.outer = nn.Linear(hidden, 1)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, states: Tensor, perturbed: Tensor) -> Tensor:
        """Compute the control variate (M,) from states (M, H) and `perturbed` logits (M, V+1).

        A constant added to all logits has no effect.
        """
        word = (perturbed / self.log_temperature.exp()).softmax(-1)
        values: Tensor = self.outer(F.relu(self.from_state(states) + self.from_word(word))).squeeze(-1)
        return values


class ControlVariates(nn.ModuleDict):
    """Control variates by the name of their term."""

    def __init__(self, names: Sequence[str], state: int, words: int, hidden: int) -> None:
        super().__init__({name: ControlVariate(state, words, hidden) for name in names})
        self.arguments: dict[str, Any] = {"names": list(names), "state": state, "words": words, "hidden": hidden}
