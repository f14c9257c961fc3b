"""PG-SPIDEr (Liu et al. 2017): policy gradients on any metric, with credit per word."""

from __future__ import annotations

from pipeline.channels.words import Multinomial
from pipeline.composition.joint import Agents, Objective, with_critic
from pipeline.composition.method import Method
from pipeline.estimators.credit import Continuations
from pipeline.ranges import Count, Natural, Share
from pipeline.scores.rewards import Reward, mixed


def pg_spider(
    agents: Agents,
    objective: Objective,
    lam: Share = 0.0,
    reward: Reward = "bcmr",
    continuations: Count = 3,
    critic_hidden: Count = 512,
    critic_first: Natural = 50,
) -> Method:
    """REINFORCE whose words are worth what their continuations score; `critic_first` steps the critic learns alone."""
    credit = Continuations(continuations)
    channel = Multinomial(objective.samples)
    score = mixed(reward, agents.cider, agents.texts)
    return with_critic(agents, objective, lam, score, channel, credit, critic_hidden, critic_first)
