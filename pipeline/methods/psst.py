"""PSST, and the methods of joint training that its paper compares (Partially-sampled straight-through, §4–6)."""

from __future__ import annotations

from typing import Literal

from pipeline.channels import Gumbel, Multinomial, PartialSampling, StraightThrough
from pipeline.estimators import Detached, Pathwise
from pipeline.methods.method import (
    ALTERNATE,
    JOINT,
    LISTENER_ONLY,
    Agents,
    Expecting,
    Method,
    Objective,
    Term,
    tradeoff,
)
from pipeline.protocols import Channel, Score

Mix = Literal["caption", "token"]
Feed = Literal["distribution", "sample"]


def psst_multinomial(
    agents: Agents,
    objective: Objective,
    lam: float,
    rho: float = 0.25,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """A share ρ of captions passes as full distributions, the rest as straight-through samples."""
    channel = PartialSampling(StraightThrough(ending=objective.ending), rho, mix, feed)
    return through_words(agents, objective, lam, channel)


def psst_gumbel(
    agents: Agents,
    objective: Objective,
    lam: float,
    rho: float = 0.25,
    temperature: float = 1.0,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """PSST over relaxed samples: a share ρ passes as they are, the rest as their argmax, straight through."""
    channel = PartialSampling(Gumbel(ending=objective.ending, temperature=temperature), rho, mix, feed)
    return through_words(agents, objective, lam, channel)


def st_multinomial(agents: Agents, objective: Objective, lam: float) -> Method:
    """Straight-through samples only: PSST with ρ = 0."""
    return through_words(agents, objective, lam, StraightThrough(ending=objective.ending))


def st_gumbel(agents: Agents, objective: Objective, lam: float, temperature: float = 1.0) -> Method:
    """Straight-through Gumbel-softmax samples only (Jang et al. 2017)."""
    return through_words(agents, objective, lam, Gumbel(ending=objective.ending, temperature=temperature))


def reinforce(
    agents: Agents,
    objective: Objective,
    lam: float,
    baseline: Expecting = "ground_truth",
) -> Method:
    """Speaker and listener take turns; the speaker learns the hinge by likelihood, minus `baseline`.

    CIDEr-D keeps the objective's baseline.
    """
    speaking = objective.by_likelihood(baseline)
    return tradeoff(agents, objective, lam, speaking, ALTERNATE, Detached(speaking.channel))


def frozen_speaker(agents: Agents, score: Score) -> Method:
    """The listener learns on what the speaker says, and the speaker stays as it is (§7.1)."""
    return Method(agents, (Term("matching", 1.0, score, Detached(Multinomial())),), LISTENER_ONLY)


def through_words(agents: Agents, objective: Objective, lam: float, channel: Channel) -> Method:
    """Both learn; the hinge's gradient reaches the speaker through the words of `channel`."""
    return tradeoff(agents, objective, lam, Pathwise(channel, objective.reduction), JOINT)
