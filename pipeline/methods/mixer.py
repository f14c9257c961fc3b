"""MIXER (Ranzato et al. 2016): captions that begin as human ones and go on as the speaker's own, ever earlier."""

from __future__ import annotations

from dataclasses import replace

from pipeline.channels.forced import Annealed, Prompted
from pipeline.composition.joint import Agents, Objective, with_critic
from pipeline.composition.method import SPEAKER, Method, Term
from pipeline.estimators.surrogate import ScoreFunction, WholeCaption
from pipeline.ranges import Count, Natural, Share
from pipeline.scores.naturalness import Given
from pipeline.scores.rewards import Reward, mixed


def mixer(
    agents: Agents,
    objective: Objective,
    lam: Share = 0.0,
    reward: Reward = "cider",
    forced: Natural | None = None,
    every: Count = 1,
    by: Count = 4,
    critic_hidden: Count = 512,
    critic_first: Natural = 0,
) -> Method:
    """Cross-entropy of the first words of human captions, REINFORCE of what the speaker goes on with.

    All words, or `forced`, are forced in the first epoch, and `by` fewer after each `every` epochs.
    """
    start = agents.speaker.max_words if forced is None else forced
    channel = Prompted(Annealed(start, every, by))
    score = mixed(reward, agents.cider, agents.texts)
    method = with_critic(
        agents, objective, lam, score, channel, WholeCaption(), critic_hidden, critic_first, words="drawn"
    )
    likelihood = Term("likelihood", 1 - lam, Given(), ScoreFunction(channel, words="forced"), SPEAKER)
    return replace(method, terms=(likelihood, *method.terms))
