"""Luo et al. 2018: score-function training of the speaker against a frozen listener."""

from __future__ import annotations

from pipeline.composition.joint import Agents, Objective, score_function, tradeoff
from pipeline.composition.method import SPEAKER_ONLY, Method
from pipeline.ranges import Share


def luo(agents: Agents, objective: Objective, lam: Share) -> Method:
    """Build REINFORCE on the hinge and on CIDEr-D with the same samples, each minus its baseline (default: greedy)."""
    return tradeoff(agents, objective, lam, score_function(objective), SPEAKER_ONLY)
