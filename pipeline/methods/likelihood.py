"""Maximum likelihood: the control for the effect of more training alone."""

from __future__ import annotations

from pipeline.composition.joint import Agents, Objective
from pipeline.composition.method import Method
from pipeline.composition.pretraining import teacher_forcing
from pipeline.ranges import Share


def mle(agents: Agents, objective: Objective, lam: Share = 0.0) -> Method:
    """Build further cross-entropy training of the pretrained speaker on human captions."""
    return teacher_forcing(agents.roles)
