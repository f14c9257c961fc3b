"""PSST, and the methods of joint training that its paper compares (Partially-sampled straight-through, §4–6)."""

from __future__ import annotations

from typing import Literal

from pipeline.baselines import NoBaseline, SelfCritical
from pipeline.channels import Forced, Gumbel, Multinomial, PartialSampling, StraightThrough
from pipeline.estimators import Detached, Pathwise
from pipeline.methods.method import ALTERNATE, JOINT, LISTENER_ONLY, Agents, Method, Objective, Term, tradeoff
from pipeline.protocols import Baseline, Channel, Score

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
    return _through_words(agents, objective, lam, channel)


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
    return _through_words(agents, objective, lam, channel)


def st_multinomial(agents: Agents, objective: Objective, lam: float) -> Method:
    """Straight-through samples only: PSST with ρ = 0."""
    return _through_words(agents, objective, lam, StraightThrough(ending=objective.ending))


def st_gumbel(agents: Agents, objective: Objective, lam: float, temperature: float = 1.0) -> Method:
    """Straight-through Gumbel-softmax samples only (Jang et al. 2017)."""
    return _through_words(agents, objective, lam, Gumbel(ending=objective.ending, temperature=temperature))


def reinforce(
    agents: Agents,
    objective: Objective,
    lam: float,
    baseline: Literal["ground_truth", "greedy", "none"] = "ground_truth",
) -> Method:
    """Speaker and listener take turns; the speaker learns the hinge by likelihood, minus `baseline`."""
    expected: dict[str, Baseline] = {
        "ground_truth": SelfCritical(Forced(learns=False)),
        "greedy": objective.greedy(),
        "none": NoBaseline(),
    }
    speaking = objective.by_likelihood(expected[baseline])
    return tradeoff(agents, objective, lam, speaking, ALTERNATE, Detached(Multinomial()))


def frozen_speaker(agents: Agents, score: Score) -> Method:
    """The listener learns on what the speaker says, and the speaker stays as it is (§7.1)."""
    return Method(agents, (Term("matching", 1.0, score, Detached(Multinomial())),), LISTENER_ONLY)


def _through_words(agents: Agents, objective: Objective, lam: float, channel: Channel) -> Method:
    return tradeoff(agents, objective, lam, Pathwise(channel, objective.reduction), JOINT)
