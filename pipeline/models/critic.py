"""What a speaker's state promises: a learned baseline."""

from __future__ import annotations

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
