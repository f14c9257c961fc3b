"""MIXER (Ranzato et al. 2016): captions with a forced human prefix, which becomes shorter during training."""

from __future__ import annotations

from dataclasses import replace

from pipeline.channels.teacher_forcing import ForcedPrefix, PrefixSchedule
from pipeline.composition.joint import Agents, Objective, build_critic_method
from pipeline.composition.method import SPEAKER, Method, Term
from pipeline.composition.method_card import MethodCard
from pipeline.estimators.surrogate import CaptionCredit, ScoreFunction
from pipeline.ranges import Count, Natural, Share
from pipeline.scores.naturalness import HumanCaption
from pipeline.scores.rewards import Reward, mix_metrics

CARDS = {
    "mixer": MethodCard("MIXER", 5, "Ranzato et al., ICLR 2016"),
}


def mixer(
    agents: Agents,
    objective: Objective,
    lam: Share = 0.0,
    reward: Reward = "cider",
    forced_tokens: Natural | None = None,
    every: Count = 1,
    decrement: Count = 4,
    critic_hidden: Count = 512,
    critic_first: Natural = 0,
) -> Method:
    """Build λ · hinge + (1 − λ) · (cross-entropy on a forced human prefix + REINFORCE on its sampled continuation).

    The baseline of `reward` is a critic, which is trained alone in the first `critic_first` steps. The first epoch
    forces `forced_tokens` tokens (None: all). The number falls by `decrement` after every `every` epochs.
    """
    start = agents.speaker.max_words if forced_tokens is None else forced_tokens
    channel = ForcedPrefix(PrefixSchedule(start, every, decrement))
    score = mix_metrics(reward, agents.cider, agents.texts)
    method = build_critic_method(
        agents, objective, lam, score, channel, CaptionCredit(), critic_hidden, critic_first, words="drawn"
    )
    likelihood = Term("likelihood", 1 - lam, HumanCaption(), ScoreFunction(channel, words="forced"), SPEAKER)
    return replace(method, terms=(likelihood, *method.terms))
