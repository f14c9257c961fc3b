"""PSST, and the methods of joint training that its paper compares (Partially-sampled straight-through, §4–6)."""

from __future__ import annotations

from pipeline.channels.partial import Feed, Mix, PartialSampling
from pipeline.channels.straight_through import Gumbel, StraightThrough
from pipeline.composition.joint import Agents, Expecting, Objective, by_likelihood, through_words, tradeoff
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
    """A share ρ of captions passes as full distributions, the rest as straight-through samples."""
    channel = PartialSampling(StraightThrough(ending=objective.ending), rho, mix, feed)
    return through_words(agents, objective, lam, channel)


def psst_gumbel(
    agents: Agents,
    objective: Objective,
    lam: Share,
    rho: Share = 0.25,
    temperature: Positive = 1.0,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """PSST over relaxed samples: a share ρ passes as they are, the rest as their argmax, straight through."""
    channel = PartialSampling(Gumbel(ending=objective.ending, temperature=temperature), rho, mix, feed)
    return through_words(agents, objective, lam, channel)


def st_multinomial(agents: Agents, objective: Objective, lam: Share) -> Method:
    """Straight-through samples only: PSST with ρ = 0."""
    return through_words(agents, objective, lam, StraightThrough(ending=objective.ending))


def st_gumbel(agents: Agents, objective: Objective, lam: Share, temperature: Positive = 1.0) -> Method:
    """Straight-through Gumbel-softmax samples only (Jang et al. 2017)."""
    return through_words(agents, objective, lam, Gumbel(ending=objective.ending, temperature=temperature))


def reinforce(
    agents: Agents,
    objective: Objective,
    lam: Share,
    baseline: Expecting = "ground_truth",
) -> Method:
    """Speaker and listener take turns; the speaker learns the hinge by likelihood, minus `baseline`.

    CIDEr-D keeps the objective's baseline.
    """
    speaking = by_likelihood(objective, baseline)
    return tradeoff(
        agents, objective, lam, speaking, ALTERNATE, Detached(speaking.channel, objective.listener_reduction)
    )
