"""Maximum likelihood: what more training alone would do."""

from __future__ import annotations

from pipeline.composition.joint import Agents, Objective
from pipeline.composition.method import Method
from pipeline.composition.pretraining import teacher_forcing
from pipeline.ranges import Share


def mle(agents: Agents, objective: Objective, lam: Share = 0.0) -> Method:
    """Cross-entropy on human captions, from the pretrained speaker on."""
    return teacher_forcing(agents.roles)
