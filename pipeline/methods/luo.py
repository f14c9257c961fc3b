"""Luo et al. 2018: the speaker learns, by likelihood, to be understood by a listener that stays as it is."""

from __future__ import annotations

from pipeline.methods.method import SPEAKER_ONLY, Agents, Method, Objective, tradeoff


def luo(agents: Agents, objective: Objective, lam: float) -> Method:
    """REINFORCE on the hinge and on CIDEr-D with the same samples, each minus its greedy baseline."""
    return tradeoff(agents, objective, lam, objective.by_likelihood(), SPEAKER_ONLY)
