"""Luo et al. 2018: the speaker learns, by likelihood, to be understood by a listener that stays as it is."""

from __future__ import annotations

from pipeline.composition.joint import Agents, Objective, by_likelihood, tradeoff
from pipeline.composition.method import SPEAKER_ONLY, Method
from pipeline.ranges import Share


def luo(agents: Agents, objective: Objective, lam: Share) -> Method:
    """REINFORCE on the hinge and on CIDEr-D with the same samples, each minus its greedy baseline."""
    return tradeoff(agents, objective, lam, by_likelihood(objective), SPEAKER_ONLY)
