"""ReinMax (Liu et al. 2023): straight-through samples with a second-order gradient, alone and in PSST."""

from __future__ import annotations

from pipeline.channels.partial import Feed, MixUnit, PartialSampling
from pipeline.channels.straight_through import ReinMax
from pipeline.composition.joint import Agents, Objective, pathwise
from pipeline.composition.method import Method
from pipeline.composition.method_card import MethodCard
from pipeline.ranges import Positive, Share

CARDS = {
    "st_reinmax": MethodCard("ReinMax", 9, "Liu, Dong et al., NeurIPS 2023"),
    "psst_reinmax": MethodCard("PSST-ReinMax", 9, "Vered et al., ICCV 2019; Liu, Dong et al., NeurIPS 2023"),
}


def st_reinmax(agents: Agents, objective: Objective, lam: Share, temperature: Positive = 1.0) -> Method:
    """Build joint training on straight-through samples with ReinMax's gradient."""
    return pathwise(agents, objective, lam, ReinMax(eos_gradient=objective.eos_gradient, temperature=temperature))


def psst_reinmax(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.75,
    temperature: Positive = 1.0,
    mix: MixUnit = "token",
    feed: Feed = "distribution",
) -> Method:
    """Build PSST over ReinMax: a share ρ of captions or tokens (`mix`) passes as distributions, others as tokens."""
    channel = PartialSampling(ReinMax(eos_gradient=objective.eos_gradient, temperature=temperature), rho, mix, feed)
    return pathwise(agents, objective, lam, channel)
