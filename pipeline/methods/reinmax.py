"""ReinMax (Liu et al. 2023): straight-through samples with a gradient of second order, alone and in PSST."""

from __future__ import annotations

from pipeline.channels.partial import Feed, Mix, PartialSampling
from pipeline.channels.straight_through import ReinMax
from pipeline.composition.joint import Agents, Objective, through_words
from pipeline.composition.method import Method
from pipeline.ranges import Positive, Share


def st_reinmax(agents: Agents, objective: Objective, lam: Share, temperature: Positive = 1.0) -> Method:
    """Straight-through samples with ReinMax's gradient."""
    return through_words(agents, objective, lam, ReinMax(ending=objective.ending, temperature=temperature))


def psst_reinmax(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.25,
    temperature: Positive = 1.0,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """A share ρ of captions passes as full distributions, the rest as samples with ReinMax's gradient."""
    channel = PartialSampling(ReinMax(ending=objective.ending, temperature=temperature), rho, mix, feed)
    return through_words(agents, objective, lam, channel)
