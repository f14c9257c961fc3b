"""PSST (partially-sampled straight-through, §4–6), and the joint-training methods that its paper compares."""

from __future__ import annotations

from pipeline.channels.partial import Feed, Mix, PartialSampling
from pipeline.channels.straight_through import Gumbel, StraightThrough
from pipeline.composition.joint import Agents, BaselineName, Objective, pathwise, score_function, tradeoff
from pipeline.composition.method import ALTERNATE, Method
from pipeline.estimators.surrogate import Detached
from pipeline.ranges import Positive, Share


def psst_multinomial(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.25,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """Build PSST: a share ρ of captions passes as full distributions, the others as straight-through samples."""
    channel = PartialSampling(StraightThrough(eos_gradient=objective.eos_gradient), rho, mix, feed)
    return pathwise(agents, objective, lam, channel)


def psst_gumbel(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.25,
    temperature: Positive = 1.0,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """Build PSST over relaxed samples: a share ρ passes unchanged, the others as their straight-through argmax."""
    channel = PartialSampling(Gumbel(eos_gradient=objective.eos_gradient, temperature=temperature), rho, mix, feed)
    return pathwise(agents, objective, lam, channel)


def st_multinomial(agents: Agents, objective: Objective, lam: Share) -> Method:
    """Build joint training on straight-through samples only: PSST with ρ = 0."""
    return pathwise(agents, objective, lam, StraightThrough(eos_gradient=objective.eos_gradient))


def st_gumbel(agents: Agents, objective: Objective, lam: Share, temperature: Positive = 1.0) -> Method:
    """Build joint training on straight-through Gumbel-softmax samples only (Jang et al. 2017)."""
    return pathwise(agents, objective, lam, Gumbel(eos_gradient=objective.eos_gradient, temperature=temperature))


def reinforce(
    agents: Agents,
    objective: Objective,
    lam: Share,
    baseline: BaselineName = "ground_truth",
) -> Method:
    """Build alternate training of speaker and listener; the speaker's hinge uses the score function minus `baseline`.

    CIDEr-D keeps the objective's baseline.
    """
    speaking = score_function(objective, baseline)
    return tradeoff(
        agents, objective, lam, speaking, ALTERNATE, Detached(speaking.channel, objective.listener_reduction)
    )
