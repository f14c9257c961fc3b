"""WTF-RL (Chaffin, Kijak, Claveau 2024): captions that a fixed retriever tells apart, and that read like people's."""

from __future__ import annotations

from pipeline.channels.forced import Forced
from pipeline.channels.partial import Feed, Mix, PartialSampling
from pipeline.channels.straight_through import StraightThrough
from pipeline.channels.words import Greedy
from pipeline.composition.joint import Agents, Objective, by_likelihood
from pipeline.composition.method import JOINT, LISTENER, SPEAKER, SPEAKER_ONLY, Method, Term
from pipeline.composition.rewarding import RewardModels, trajectories, with_discriminator
from pipeline.errors import UserError
from pipeline.estimators.baselines import SelfCritical
from pipeline.estimators.surrogate import Pathwise, ScoreFunction, Weighting
from pipeline.protocols import Channel
from pipeline.ranges import NonNegative, Positive, Share
from pipeline.scores.contrastive import ClipScore, Combine, Contrastive, Directions, Similarity
from pipeline.scores.human import Human
from pipeline.scores.naturalness import Cider


def wtf(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    alpha: Share = 0.94,
    combine: Combine = "sum",
    clamp: Positive | None = None,
) -> Method:
    """Weighted teacher forcing: the speaker learns human captions, each as much as its reward says (§3.3)."""
    return _rewarded(agents, rewards, alpha, rewards.contrastive("both", combine, clamp), Forced())


def rl(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    alpha: Share = 0.94,
    directions: Directions = "both",
    combine: Combine = "sum",
    clamp: Positive | None = None,
) -> Method:
    """The speaker learns the captions that it searched, by their reward (Eq. 1 and 2)."""
    return _rewarded(agents, rewards, alpha, rewards.contrastive(directions, combine, clamp), rewards.searched)


def rl_unidirectional(
    agents: Agents, objective: Objective, rewards: RewardModels, alpha: Share = 0.94, clamp: Positive | None = None
) -> Method:
    """`rl` with the direction image → text alone: the strongest caption of the batch is the baseline (§4.2)."""
    return rl(agents, objective, rewards, alpha, "image_to_text", clamp=clamp)


def wtf_rl(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    alpha: Share = 0.94,
    combine: Combine = "sum",
    clamp: Positive | None = None,
    weighting: Weighting = "word",
) -> Method:
    """Both trajectories (Eq. 3).

    `weighting`: each trajectory is a mean over its words, or a mean over captions, as Eq. 3 has it.
    """
    contrastive = rewards.contrastive("both", combine, clamp)
    return _rewarded(agents, rewards, alpha, contrastive, rewards.searched, Forced(), weighting=weighting)


def scst_discriminator(agents: Agents, objective: Objective, rewards: RewardModels, alpha: Share = 0.94) -> Method:
    """The cosine minus that of the greedy caption, and the discriminator (§4.2)."""
    searched, critical = rewards.searched, ScoreFunction(rewards.searched, SelfCritical(Greedy()))
    terms = (
        Term("discriminability", alpha, Similarity(rewards.retriever), critical, SPEAKER),
        Term("naturalness", 1 - alpha, rewards.human, ScoreFunction(searched), SPEAKER),
    )
    return with_discriminator(Method(agents.roles, terms, SPEAKER_ONLY), rewards, rewards.search)


def scst_grammar(
    agents: Agents, objective: Objective, rewards: RewardModels, similarity: NonNegative = 2.0, grammar: Positive = 1.0
) -> Method:
    """CLIP-S and a fixed judge of grammar, both minus those of the greedy caption (Cho et al. 2022)."""
    critical = ScoreFunction(rewards.searched, SelfCritical(Greedy()))
    terms = (
        Term("discriminability", similarity, ClipScore(Similarity(rewards.retriever)), critical, SPEAKER),
        Term("naturalness", grammar, Human(rewards.retriever, rewards.grammar), critical, SPEAKER),
    )
    return Method(agents.roles, terms, SPEAKER_ONLY, watching=rewards.watching)


def psst_wtf(
    agents: Agents,
    objective: Objective,
    rewards: RewardModels,
    lam: Share,
    rho: Share = 0.25,
    alpha: Share = 0.94,
    combine: Combine = "sum",
    clamp: Positive | None = None,
    mix: Mix = "caption",
    feed: Feed = "distribution",
) -> Method:
    """PSST whose listener learns Eq. 2 in place of the hinge, with the discriminator as a part of the score.

    Nobody has tried it. Raises UserError for a retriever that reads text and hears no distributions.
    """
    if not rewards.retriever.differentiable:
        raise UserError("psst_wtf: the retriever reads text, and PSST's captions are distributions: take a listener")
    channel = PartialSampling(StraightThrough(ending=objective.ending), rho, mix, feed)
    through = Pathwise(channel, objective.reduction)
    # among its own captions: as negatives, human ones would teach the listener to like them less
    heard = Contrastive(agents.listener, (), rewards.retriever.temperature, "both", combine, clamp)
    terms = (
        Term("discriminability", lam * alpha, heard, through, SPEAKER | LISTENER),
        Term("human", lam * (1 - alpha), rewards.human, through, SPEAKER),
        Term("naturalness", 1 - lam, Cider(agents.cider), by_likelihood(objective), SPEAKER),
    )
    used = tuple(term for term in terms if term.weight)
    return with_discriminator(Method(agents.roles, used, JOINT, objective.normalise), rewards, channel)


def _rewarded(
    agents: Agents,
    rewards: RewardModels,
    alpha: float,
    contrastive: Contrastive,
    *along: Channel,
    weighting: Weighting = "word",
) -> Method:
    terms = trajectories(contrastive, rewards, alpha, *along, weighting=weighting)
    return with_discriminator(Method(agents.roles, terms, SPEAKER_ONLY), rewards, rewards.search)
