"""What a speaker's state promises: a learned baseline, and learned control variates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Critic(nn.Module):
    """An MLP with one hidden layer on the speaker's states (Liu et al. 2017; Ranzato et al. 2016)."""

    def __init__(self, state: int, hidden: int = 512) -> None:
        super().__init__()
        self.arguments = {"state": state, "hidden": hidden}
        self.inner = nn.Linear(state, hidden)
        self.outer = nn.Linear(hidden, 1)

    def forward(self, states: Tensor) -> Tensor:
        """(…): the score to expect of captions in `states` (…, H)."""
        return self.outer(F.relu(self.inner(states))).squeeze(-1)


class Control(nn.Module):
    """The same MLP, given a relaxed word, too, whose temperature it learns (RELAX, Grathwohl et al. 2018).

    It begins as 0 everywhere.
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
        """(M,): of states (M, H) and `perturbed` logits (M, V+1), which any constant may be added to."""
        word = (perturbed / self.log_temperature.exp()).softmax(-1)
        return self.outer(F.relu(self.from_state(states) + self.from_word(word))).squeeze(-1)


class Controls(nn.ModuleDict):
    """A `Control` for each of several scores, by name."""

    def __init__(self, names: Sequence[str], state: int, words: int, hidden: int) -> None:
        super().__init__({name: Control(state, words, hidden) for name in names})
        self.arguments: dict[str, Any] = {"names": list(names), "state": state, "words": words, "hidden": hidden}
