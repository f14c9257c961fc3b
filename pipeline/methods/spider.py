"""PG-SPIDEr (Liu et al. 2017): policy gradients on any metric, with credit per token."""

from __future__ import annotations

from pipeline.channels.hard import Multinomial
from pipeline.composition.joint import Agents, Objective, build_critic_method
from pipeline.composition.method import Method
from pipeline.composition.method_card import MethodCard
from pipeline.estimators.credit import MonteCarloCredit
from pipeline.ranges import Count, Natural, Share
from pipeline.scores.rewards import Reward, mix_metrics

CARDS = {
    "pg_spider": MethodCard("PG-SPIDEr", 5, "Liu, Zhu et al., ICCV 2017"),
    "pg_cider": MethodCard("PG-CIDEr", 5, "Liu, Zhu et al., ICCV 2017"),
    "pg_bcmr": MethodCard("PG-BCMR", 5, "Liu, Zhu et al., ICCV 2017"),
    "pg_spice": MethodCard("PG-SPICE", 5, "Liu, Zhu et al., ICCV 2017"),
}


def pg_spider(
    agents: Agents,
    objective: Objective,
    lam: Share = 0.0,
    reward: Reward = "bcmr",
    rollouts: Count = 3,
    critic_hidden: Count = 512,
    critic_first: Natural = 50,
) -> Method:
    """Build λ · hinge + (1 − λ) · `reward` by REINFORCE.

    The reward has Monte-Carlo credit per token, from `rollouts` continuations, and a critic as baseline. The critic is
    trained alone for `critic_first` steps.
    """
    credit = MonteCarloCredit(rollouts)
    channel = Multinomial(objective.samples)
    score = mix_metrics(reward, agents.cider, agents.texts)
    return build_critic_method(agents, objective, lam, score, channel, credit, critic_hidden, critic_first)
