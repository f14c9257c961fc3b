"""DiscriTune (Dessì et al. 2023): REINFORCE on a frozen retriever's log p(image | caption)."""

from __future__ import annotations

from typing import Literal

from pipeline.channels.hard import Multinomial
from pipeline.composition.joint import Agents, Objective
from pipeline.composition.method import SPEAKER, SPEAKER_ONLY, Method, Term
from pipeline.composition.method_card import MethodCard
from pipeline.composition.retrieval_rewards import RewardModels
from pipeline.estimators.baselines import RunningMean
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.scores.contrastive import TargetLogProbability

CARDS = {"discritune": MethodCard("DiscriTune", 6, "Dessì et al., CVPR 2023")}


def discritune(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    captions: Literal["sampled", "searched"] = "sampled",
) -> Method:
    """Build REINFORCE on log p(image | caption), minus its running mean over earlier batches.

    The probability is over the batch's images and their neighbours, if the retriever has neighbours. `captions` are
    samples, as in REINFORCE, or found by the search of `rewards`, as in the published code. No human caption is used.
    """
    channel = Multinomial(objective.samples) if captions == "sampled" else rewards.search_trajectory
    score = TargetLogProbability(rewards.retriever, rewards.retriever.temperature)
    term = Term("discriminability", 1.0, score, ScoreFunction(channel, RunningMean()), SPEAKER)
    return Method(agents.roles, (term,), SPEAKER_ONLY, validation_judges=rewards.validation_judges)
