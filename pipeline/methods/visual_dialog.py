"""Visual dialog (Lu et al. 2017): a discriminator that knows the answer among candidates teaches a generator to say it.

`alpha` weighs likelihood, which stays beside; `reduction: mean` of the objective is the paper's.
"""

from __future__ import annotations

from pipeline.channels.partial import Feed, Mix, PartialSampling
from pipeline.channels.straight_through import Gumbel, ReinMax, StraightThrough
from pipeline.channels.words import Multinomial
from pipeline.composition.dialog import Interlocutors, taught
from pipeline.composition.method import ALTERNATE, LISTENER, Method, Term
from pipeline.composition.objective import Objective
from pipeline.composition.pretraining import teacher_forcing
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.surrogate import Detached, Pathwise, ScoreFunction
from pipeline.protocols import Channel
from pipeline.ranges import Count, NonNegative, Positive, Share
from pipeline.scores.answers import Chosen, Preferred


def g_more(agents: Interlocutors, objective: Objective) -> Method:
    """Likelihood for as many further steps: the control without which a gain says nothing."""
    return teacher_forcing(agents.roles)


def g_dis(
    agents: Interlocutors,
    objective: Objective,
    alpha: NonNegative = 0.5,
    temperature: Positive = 0.5,
    norms: NonNegative = 0.0,
) -> Method:
    """G-DIS: words by Gumbel straight-through, which the discriminator, as it was pretrained, hears (Eq. 5)."""
    return taught(agents, objective, alpha, _through(objective, _gumbel(objective, temperature)), norms=norms)


def g_psst(
    agents: Interlocutors,
    objective: Objective,
    alpha: NonNegative = 0.5,
    rho: Share = 0.25,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """G-DIS's objective through partial sampling: a share ρ of answers passes as full distributions."""
    channel = PartialSampling(StraightThrough(ending=objective.ending), rho, mix, feed)
    return taught(agents, objective, alpha, _through(objective, channel))


def g_reinmax(
    agents: Interlocutors, objective: Objective, alpha: NonNegative = 0.5, temperature: Positive = 1.0
) -> Method:
    """G-DIS's objective with ReinMax's gradient."""
    return taught(
        agents, objective, alpha, _through(objective, ReinMax(ending=objective.ending, temperature=temperature))
    )


def g_rloo(agents: Interlocutors, objective: Objective, alpha: NonNegative = 0.5, samples: Count = 4) -> Method:
    """G-DIS's objective by REINFORCE, each sample minus the mean of the others of its question."""
    return taught(agents, objective, alpha, ScoreFunction(Multinomial(samples), LeaveOneOut()))


def gan1(agents: Interlocutors, objective: Objective, alpha: NonNegative = 0.5, temperature: Positive = 0.5) -> Method:
    """The discriminator learns, in turns, to prefer the human answer to what was said: log(1 + exp(said − human))."""
    channel = _gumbel(objective, temperature)
    told = Term("listening", 1.0, Preferred(agents.listener, reverse=True), Detached(channel), LISTENER)
    return taught(agents, objective, alpha, _through(objective, channel), ALTERNATE, (told,))


def gan2(agents: Interlocutors, objective: Objective, alpha: NonNegative = 0.5, temperature: Positive = 0.5) -> Method:
    """The discriminator goes on with its candidates, and what was said is one more of them."""
    channel = _gumbel(objective, temperature)
    told = Term("listening", 1.0, Chosen(agents.listener, adversary=True), Detached(channel), LISTENER)
    return taught(agents, objective, alpha, _through(objective, channel), ALTERNATE, (told,))


def _gumbel(objective: Objective, temperature: float) -> Gumbel:
    return Gumbel(ending=objective.ending, temperature=temperature)


def _through(objective: Objective, channel: Channel) -> Pathwise:
    return Pathwise(channel, objective.reduction)
