"""PSST: speaker and listener learn together, through the words (Partially-sampled straight-through, §5)."""

from __future__ import annotations

from typing import Literal

from pipeline.channels import PartialSampling, StraightThrough
from pipeline.estimators import Pathwise
from pipeline.methods.method import JOINT, Agents, Method, Objective, tradeoff
from pipeline.protocols import Channel


def psst_multinomial(
    agents: Agents,
    objective: Objective,
    lam: float,
    rho: float = 0.25,
    mix: Literal["caption", "token"] = "caption",
    feed: Literal["distribution", "sample"] = "distribution",
) -> Method:
    """A share ρ of captions passes as full distributions, the rest as straight-through samples."""
    channel = PartialSampling(StraightThrough(ending=objective.ending), rho, mix, feed)
    return _through_words(agents, objective, lam, channel)


def st_multinomial(agents: Agents, objective: Objective, lam: float) -> Method:
    """Straight-through samples only: PSST with ρ = 0."""
    return _through_words(agents, objective, lam, StraightThrough(ending=objective.ending))


def _through_words(agents: Agents, objective: Objective, lam: float, channel: Channel) -> Method:
    hinge = objective.hinge_of(agents.listener)
    return tradeoff(agents, objective, lam, (hinge, Pathwise(channel, objective.reduction)), JOINT)
