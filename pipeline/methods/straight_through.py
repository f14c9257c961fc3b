"""Better straight-through gradients, alone and in PSST: ReinMax (Liu et al. 2023), Gumbel-Rao (Paulus et al. 2021)."""

from __future__ import annotations

from pipeline.channels import PartialSampling
from pipeline.methods.method import Agents, Method, Objective
from pipeline.methods.psst import Feed, Mix, through_words
from pipeline.straight_through import GumbelRao, ReinMax


def st_reinmax(agents: Agents, objective: Objective, lam: float, temperature: float = 1.0) -> Method:
    """Straight-through samples with ReinMax's gradient."""
    return through_words(agents, objective, lam, ReinMax(ending=objective.ending, temperature=temperature))


def psst_reinmax(
    agents: Agents,
    objective: Objective,
    lam: float,
    rho: float = 0.25,
    temperature: float = 1.0,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """A share ρ of captions passes as full distributions, the rest as samples with ReinMax's gradient."""
    channel = PartialSampling(ReinMax(ending=objective.ending, temperature=temperature), rho, mix, feed)
    return through_words(agents, objective, lam, channel)


def st_gumbel_rao(agents: Agents, objective: Objective, lam: float, temperature: float = 1.0, k: int = 10) -> Method:
    """Straight-through Gumbel-softmax samples, the gradient averaged over `k` draws of the noise given the word."""
    return through_words(agents, objective, lam, GumbelRao(ending=objective.ending, temperature=temperature, k=k))


def psst_gumbel_rao(
    agents: Agents,
    objective: Objective,
    lam: float,
    rho: float = 0.25,
    temperature: float = 1.0,
    k: int = 10,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """A share ρ passes as the mean of `k` relaxed samples, the rest as their word, Gumbel-Rao."""
    channel = PartialSampling(GumbelRao(ending=objective.ending, temperature=temperature, k=k), rho, mix, feed)
    return through_words(agents, objective, lam, channel)
