"""Policy gradients on any metric with credit per word: PG-SPIDEr (Liu et al. 2017), MIXER (Ranzato et al. 2016)."""

from __future__ import annotations

from dataclasses import replace

from pipeline.baselines import Learned
from pipeline.channels import Annealed, Multinomial, Prompted
from pipeline.credit import Continuations, WholeCaption
from pipeline.estimators import Regression, ScoreFunction
from pipeline.methods.method import CRITIC, SPEAKER, Agents, Method, Objective, Term, Turns
from pipeline.models.critic import Critic
from pipeline.protocols import Channel, Credit
from pipeline.scores.naturalness import Given
from pipeline.scores.rewards import Metric, Mix, mixed
from pipeline.types import Words

Reward = Mix | dict[Metric, float]


def pg_spider(
    agents: Agents,
    objective: Objective,
    lam: float = 0.0,
    reward: Reward = "bcmr",
    continuations: int = 3,
    critic_hidden: int = 512,
    critic_first: int = 50,
) -> Method:
    """REINFORCE whose words are worth what their continuations score; `critic_first` steps the critic learns alone."""
    credit = Continuations(continuations)
    channel = Multinomial(objective.samples)
    return _with_critic(agents, objective, lam, reward, channel, credit, critic_hidden, critic_first)


def mixer(
    agents: Agents,
    objective: Objective,
    lam: float = 0.0,
    reward: Reward = "cider",
    forced: int | None = None,
    every: int = 1,
    by: int = 4,
    critic_hidden: int = 512,
    critic_first: int = 0,
) -> Method:
    """Cross-entropy of the first words of human captions, REINFORCE of what the speaker goes on with.

    All words, or `forced`, are forced in the first epoch, and `by` fewer after each `every` epochs.
    """
    start = agents.speaker.max_words if forced is None else forced
    channel = Prompted(Annealed(start, every, by))
    method = _with_critic(
        agents, objective, lam, reward, channel, WholeCaption(), critic_hidden, critic_first, words="drawn"
    )
    likelihood = Term("likelihood", 1 - lam, Given(), ScoreFunction(channel, words="told"), SPEAKER)
    return replace(method, terms=(likelihood, *method.terms))


def _with_critic(
    agents: Agents,
    objective: Objective,
    lam: float,
    reward: Reward,
    channel: Channel,
    credit: Credit,
    hidden: int,
    alone: int,
    words: Words = "all",
) -> Method:
    """λ · hinge by likelihood + (1 − λ) · reward minus what a critic, which learns beside, expects."""
    critic = Critic(agents.speaker.hidden, hidden)
    score = mixed(reward, agents.cider, agents.texts)
    expected = Learned(critic, channel)
    terms = (
        Term("discriminability", lam, objective.hinge_of(agents.listener), objective.by_likelihood(), SPEAKER),
        Term("naturalness", 1 - lam, score, ScoreFunction(channel, expected, credit=credit, words=words), SPEAKER),
        Term("critic", 1.0, score, Regression(channel, critic, credit, words), CRITIC),
    )
    turns = Turns((SPEAKER | CRITIC,), CRITIC, alone)
    used = tuple(term for term in terms if term.weight)
    return Method(replace(agents, critic=critic), used, turns, objective.normalise)
