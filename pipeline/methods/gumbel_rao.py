"""Gumbel-Rao (Paulus et al. 2021): straight-through Gumbel with lower variance, alone and in PSST."""

from __future__ import annotations

from pipeline.channels.partial import Feed, MixUnit, PartialSampling
from pipeline.channels.straight_through import GumbelRao
from pipeline.composition.joint import Agents, Objective, pathwise
from pipeline.composition.method import Method
from pipeline.composition.method_card import MethodCard
from pipeline.ranges import Count, Positive, Share

CARDS = {
    "st_gumbel_rao": MethodCard("Gumbel-Rao", 6, "Paulus et al., ICLR 2021"),
    "psst_gumbel_rao": MethodCard("PSST-Gumbel-Rao", 10, "Vered et al., ICCV 2019; Paulus et al., ICLR 2021"),
}


def st_gumbel_rao(
    agents: Agents, objective: Objective, lam: Share, temperature: Positive = 1.0, k: Count = 10
) -> Method:
    """Build joint training on straight-through Gumbel samples, with the gradient averaged over `k` noise draws."""
    return pathwise(
        agents, objective, lam, GumbelRao(eos_gradient=objective.eos_gradient, temperature=temperature, k=k)
    )


def psst_gumbel_rao(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.75,
    temperature: Positive = 1.0,
    k: Count = 10,
    mix: MixUnit = "token",
    feed: Feed = "distribution",
) -> Method:
    """Build PSST over Gumbel-Rao: a share ρ of captions or tokens (`mix`) passes as means of `k` relaxed samples.

    The others pass as straight-through tokens.
    """
    channel = PartialSampling(
        GumbelRao(eos_gradient=objective.eos_gradient, temperature=temperature, k=k), rho, mix, feed
    )
    return pathwise(agents, objective, lam, channel)
