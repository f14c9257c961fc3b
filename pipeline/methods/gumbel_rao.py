"""Gumbel-Rao (Paulus et al. 2021): straight-through Gumbel with less variance, alone and in PSST."""

from __future__ import annotations

from pipeline.channels.partial import Feed, Mix, PartialSampling
from pipeline.channels.straight_through import GumbelRao
from pipeline.composition.joint import Agents, Objective, through_words
from pipeline.composition.method import Method
from pipeline.ranges import Count, Positive, Share


def st_gumbel_rao(
    agents: Agents, objective: Objective, lam: Share, temperature: Positive = 1.0, k: Count = 10
) -> Method:
    """Straight-through Gumbel-softmax samples, the gradient averaged over `k` draws of the noise given the word."""
    return through_words(agents, objective, lam, GumbelRao(ending=objective.ending, temperature=temperature, k=k))


def psst_gumbel_rao(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.25,
    temperature: Positive = 1.0,
    k: Count = 10,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """A share ρ passes as the mean of `k` relaxed samples, the rest as their word, Gumbel-Rao."""
    channel = PartialSampling(GumbelRao(ending=objective.ending, temperature=temperature, k=k), rho, mix, feed)
    return through_words(agents, objective, lam, channel)
