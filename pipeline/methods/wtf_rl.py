"""WTF-RL (Chaffin, Kijak, Claveau 2024): rewards for retrieval by a fixed retriever and for likeness to human text."""

from __future__ import annotations

from pipeline.channels.hard import Greedy
from pipeline.channels.partial import Feed, MixUnit, PartialSampling
from pipeline.channels.straight_through import StraightThrough
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.joint import Agents, Objective, score_function
from pipeline.composition.method import JOINT, LISTENER, SPEAKER, SPEAKER_ONLY, Method, Term
from pipeline.composition.method_card import MethodCard
from pipeline.composition.retrieval_rewards import RewardModels, add_discriminator, build_reward_terms
from pipeline.errors import UserError
from pipeline.estimators.baselines import SelfCritical
from pipeline.estimators.surrogate import Pathwise, ScoreFunction, Weighting
from pipeline.protocols import Channel
from pipeline.ranges import NonNegative, Positive, Share
from pipeline.scores.contrastive import ClipScore, Combine, ContrastiveScore, CosineScore, Directions
from pipeline.scores.human_likeness import HumanProbability
from pipeline.scores.naturalness import CiderScore

CARDS = {
    "wtf": MethodCard("WTF", 9, "Chaffin et al., 2024", ordinary_word=True),
    "rl": MethodCard("RL", 4, "Chaffin et al., 2024", ordinary_word=True),
    "rl_unidirectional": MethodCard("RL, unidirectional", 6, "Chaffin et al., 2024"),
    "wtf_rl": MethodCard("WTF-RL", 10, "Chaffin et al., 2024"),
    "scst_discriminator": MethodCard("SCST with discriminator", 5, "Chaffin et al., 2024"),
    "scst_grammar": MethodCard("SCST with grammar", 11, "Cho et al., NAACL 2022"),
    "wtf_rl_similarity": MethodCard("WTF-RL, re-ranked by similarity", 10, "Chaffin et al., 2024"),
    "rl_sampled": MethodCard("RL on samples", 4, "Chaffin et al., 2024; Williams, 1992"),
    "rloo": MethodCard("RLOO, contrastive", 4, "Chaffin et al., 2024; Kool et al., 2019"),
    "grpo": MethodCard("GRPO, contrastive", 5, "Chaffin et al., 2024; Shao et al., 2024"),
    "psst_wtf": MethodCard("PSST with WTF-RL's reward", 8, "Vered et al., ICCV 2019; Chaffin et al., 2024"),
    "psst_wtf_similarity": MethodCard(
        "PSST with WTF-RL's reward, re-ranked by similarity", 8, "Vered et al., ICCV 2019; Chaffin et al., 2024"
    ),
}


def wtf(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    alpha: Share = 0.94,
    combine: Combine = "sum",
    clamp: Positive | None = None,
) -> Method:
    """Build weighted teacher forcing: the reward of each human caption weights its log-likelihood (§3.3)."""
    return _train_on_trajectories(
        agents, rewards, alpha, rewards.build_contrastive_score("both", combine, clamp), TeacherForcing()
    )


def rl(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    alpha: Share = 0.94,
    directions: Directions = "both",
    combine: Combine = "sum",
    clamp: Positive | None = None,
) -> Method:
    """Build training on the speaker's searched captions, weighted by their reward (Eq. 1 and 2)."""
    return _train_on_trajectories(
        agents, rewards, alpha, rewards.build_contrastive_score(directions, combine, clamp), rewards.search_trajectory
    )


def rl_unidirectional(
    agents: Agents, objective: Objective, rewards: RewardModels, alpha: Share = 0.94, clamp: Positive | None = None
) -> Method:
    """Build `rl` in the direction image → text only: the hardest negative caption is the baseline (§4.2)."""
    return rl(agents, objective, rewards, alpha, "image_to_text", clamp=clamp)


def rl_sampled(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    lam: Share = 1.0,
    directions: Directions = "both",
    combine: Combine = "sum",
    clamp: Positive | None = None,
) -> Method:
    """Build score-function training on λ · contrastive reward + (1 − λ) · CIDEr-D of sampled captions.

    `train.objective` selects RLOO or GRPO, and may add a KL penalty. Negative captions of an image's k-th sample are
    the k-th samples of the batch's other images, and all human captions of the batch.
    """
    human_captions = TeacherForcing(requires_grad=False)
    contrastive = ContrastiveScore(
        rewards.retriever, (human_captions,), rewards.retriever.temperature, directions, combine, clamp
    )
    terms = (
        Term("discriminability", lam, contrastive, score_function(objective), SPEAKER),
        Term("naturalness", 1 - lam, CiderScore(agents.cider), score_function(objective), SPEAKER),
    )
    return Method(agents.roles, terms, SPEAKER_ONLY, validation_judges=rewards.validation_judges)


def wtf_rl(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    alpha: Share = 0.94,
    combine: Combine = "sum",
    clamp: Positive | None = None,
    weighting: Weighting = "word",
) -> Method:
    """Build training on both trajectories, searched and human captions (Eq. 3).

    `weighting` selects the mean of each trajectory: over its tokens, or over captions as in Eq. 3.
    """
    contrastive = rewards.build_contrastive_score("both", combine, clamp)
    return _train_on_trajectories(
        agents, rewards, alpha, contrastive, rewards.search_trajectory, TeacherForcing(), weighting=weighting
    )


def scst_discriminator(agents: Agents, objective: Objective, rewards: RewardModels, alpha: Share = 0.94) -> Method:
    """Build training on the cosine, minus the greedy caption's, and on the discriminator's reward (§4.2)."""
    trajectory = rewards.search_trajectory
    self_critical = ScoreFunction(trajectory, SelfCritical(Greedy()))
    terms = (
        Term("discriminability", alpha, CosineScore(rewards.retriever), self_critical, SPEAKER),
        Term("naturalness", 1 - alpha, rewards.human_probability, ScoreFunction(trajectory), SPEAKER),
    )
    return add_discriminator(Method(agents.roles, terms, SPEAKER_ONLY), rewards, rewards.search)


def scst_grammar(
    agents: Agents, objective: Objective, rewards: RewardModels, similarity: NonNegative = 2.0, grammar: Positive = 1.0
) -> Method:
    """Build training on CLIP-S and a frozen grammar score, each minus the greedy caption's (Cho et al. 2022)."""
    self_critical = ScoreFunction(rewards.search_trajectory, SelfCritical(Greedy()))
    terms = (
        Term("discriminability", similarity, ClipScore(CosineScore(rewards.retriever)), self_critical, SPEAKER),
        Term("naturalness", grammar, HumanProbability(rewards.retriever, rewards.grammar), self_critical, SPEAKER),
    )
    return Method(agents.roles, terms, SPEAKER_ONLY, validation_judges=rewards.validation_judges)


def psst_wtf(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    lam: Share,
    rho: Share = 0.75,
    alpha: Share = 0.94,
    combine: Combine = "sum",
    clamp: Positive | None = None,
    mix: MixUnit = "token",
    feed: Feed = "distribution",
) -> Method:
    """Build PSST with Eq. 2 in place of the hinge, and with the discriminator's reward in the score.

    No paper describes this method. Raises UserError for a retriever that encodes text only, not distributions.
    """
    if not rewards.retriever.differentiable:
        raise UserError(
            "psst_wtf: expected a retriever that encodes distributions, got a text encoder; set retriever.model to a "
            "listener of pretrain"
        )
    channel = PartialSampling(StraightThrough(eos_gradient=objective.eos_gradient), rho, mix, feed)
    pathwise = Pathwise(channel, objective.reduction)
    # only generated captions are negatives: human negatives would lower the listener's scores of human captions
    contrastive = ContrastiveScore(agents.listener, (), rewards.retriever.temperature, "both", combine, clamp)
    terms = (
        Term("discriminability", lam * alpha, contrastive, pathwise, SPEAKER | LISTENER),
        Term("human", lam * (1 - alpha), rewards.human_probability, pathwise, SPEAKER),
        Term("naturalness", 1 - lam, CiderScore(agents.cider), score_function(objective), SPEAKER),
    )
    return add_discriminator(Method(agents.roles, terms, JOINT), rewards, channel)


def _train_on_trajectories(
    agents: Agents,
    rewards: RewardModels,
    alpha: float,
    contrastive: ContrastiveScore,
    *channels: Channel,
    weighting: Weighting = "word",
) -> Method:
    terms = build_reward_terms(contrastive, rewards, alpha, *channels, weighting=weighting)
    return add_discriminator(Method(agents.roles, terms, SPEAKER_ONLY), rewards, rewards.search)
