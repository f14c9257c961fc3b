"""Components of the methods whose reward comes from a fixed retriever (Chaffin, Kijak, Claveau 2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.channels.corrupted import CorruptedCaptions
from pipeline.channels.hard import Greedy
from pipeline.channels.search import SearchTrajectory
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.composition.method import DISCRIMINATOR, GRAMMAR, SPEAKER, Method, Term, UpdateSchedule
from pipeline.estimators.discrimination import BinaryDiscrimination
from pipeline.estimators.surrogate import ScoreFunction, Weighting
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.decoder import Decoder
from pipeline.models.retriever import Retriever
from pipeline.protocols import Channel
from pipeline.scores.contrastive import Combine, ContrastiveScore, Directions
from pipeline.scores.human_likeness import HumanLogOdds, HumanProbability


@dataclass(frozen=True)
class RewardModels:
    """The retriever, two heads on its vectors, and the search channel that generates the rewarded captions."""

    retriever: Retriever
    discriminator: CaptionClassifier
    grammar: CaptionClassifier
    search: Channel
    learning_rate: float  # the discriminator's learning rate
    judge: Retriever | None = None  # for validation only; it gives no reward

    @property
    def validation_judges(self) -> dict[str, Retriever]:
        """Return the retrievers whose recall is validated during training, by metric prefix."""
        return {"rewarded": self.retriever} | ({"judged": self.judge} if self.judge else {})

    @property
    def search_trajectory(self) -> SearchTrajectory:
        """Return the channel of the searched captions, teacher-forced for their log-probabilities."""
        return SearchTrajectory(self.search)

    @property
    def human_probability(self) -> HumanProbability:
        """Return the regularisation reward P_D."""
        return HumanProbability(self.retriever, self.discriminator)

    def build_contrastive_score(
        self, directions: Directions, combine: Combine, clamp: float | None
    ) -> ContrastiveScore:
        """Build Eq. 2 over the batch's searched, greedy and human captions."""
        captions = (self.search, Greedy(), TeacherForcing(requires_grad=False))
        return ContrastiveScore(self.retriever, captions, self.retriever.temperature, directions, combine, clamp)


def build_head_pretraining(rewards: RewardModels, speaker: Decoder) -> Method:
    """Build the pretraining of both heads, which separate human captions from searched and from corrupted captions."""
    agents = {"speaker": speaker, "discriminator": rewards.discriminator, "grammar": rewards.grammar}
    odds = HumanLogOdds(rewards.retriever, rewards.discriminator), HumanLogOdds(rewards.retriever, rewards.grammar)
    terms = (
        Term("discriminator", 1.0, odds[0], BinaryDiscrimination(rewards.search), DISCRIMINATOR),
        Term("grammar", 1.0, odds[1], BinaryDiscrimination(CorruptedCaptions()), GRAMMAR),
    )
    return Method(agents, terms, UpdateSchedule((DISCRIMINATOR | GRAMMAR,)))


def build_reward_terms(
    contrastive: ContrastiveScore,
    rewards: RewardModels,
    alpha: float,
    *channels: Channel,
    weighting: Weighting = "word",
) -> tuple[Term, ...]:
    """Build α · r_bicont + (1 − α) · P_D by score functions over captions through each channel (Eq. 3)."""
    terms = []
    for channel in channels:
        estimator = ScoreFunction(channel, weighting=weighting)
        suffix = "_of_human" if isinstance(channel, TeacherForcing) else ""
        terms.append(Term(f"discriminability{suffix}", alpha, contrastive, estimator, SPEAKER))
        terms.append(Term(f"naturalness{suffix}", 1 - alpha, rewards.human_probability, estimator, SPEAKER))
    return tuple(terms)


def add_discriminator(method: Method, rewards: RewardModels, channel: Channel) -> Method:
    """Return `method` with a discriminator that separates human captions from captions through `channel`.

    The discriminator is updated at the beginning of every step after the method's warm-up. The recall by
    the retriever and the judge is validated.
    """
    odds = HumanLogOdds(rewards.retriever, rewards.discriminator)
    term = Term("discriminator", 1.0, odds, BinaryDiscrimination(channel), DISCRIMINATOR)
    order = tuple(roles | DISCRIMINATOR for roles in method.schedule.order)
    return replace(
        method,
        agents={**method.agents, "discriminator": rewards.discriminator},
        terms=(term, *method.terms),
        schedule=replace(method.schedule, order=order, early=DISCRIMINATOR),
        rates={**method.rates, "discriminator": rewards.learning_rate},
        validation_judges=rewards.validation_judges,
    )
