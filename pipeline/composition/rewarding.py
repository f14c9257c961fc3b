"""What methods that are rewarded by a fixed retriever share (Chaffin, Kijak, Claveau 2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.channels.broken import Broken
from pipeline.channels.forced import Forced
from pipeline.channels.searched import Reread
from pipeline.channels.words import Greedy
from pipeline.composition.method import DISCRIMINATOR, GRAMMAR, SPEAKER, Method, Term, Turns
from pipeline.estimators.surrogate import ScoreFunction, Weighting
from pipeline.estimators.telling_apart import TellingApart
from pipeline.models.caption_classifier import CaptionClassifier
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.models.retriever import Retriever
from pipeline.protocols import Channel
from pipeline.scores.contrastive import Combine, Contrastive, Directions
from pipeline.scores.human import Human, LogOdds


@dataclass(frozen=True)
class RewardModels:
    """The retriever, the two heads on its vectors, and how the speaker searches the captions that are rewarded."""

    retriever: Retriever
    discriminator: CaptionClassifier
    grammar: CaptionClassifier
    search: Channel
    rate: float  # the discriminator's learning rate
    judge: Retriever | None = None  # who rewards nothing and looks at the validation split

    @property
    def watching(self) -> dict[str, Retriever]:
        """Whose recall is validated while captions are rewarded."""
        return {"rewarded": self.retriever} | ({"judged": self.judge} if self.judge else {})

    @property
    def searched(self) -> Reread:
        """What is searched, as a trajectory."""
        return Reread(self.search)

    @property
    def human(self) -> Human:
        """P_D, the regularisation."""
        return Human(self.retriever, self.discriminator)

    def contrastive(
        self,
        directions: Directions,
        combine: Combine,
        clamp: float | None,
        retriever: Retriever | Listener | None = None,
    ) -> Contrastive:
        """Eq. 2 among the searched, the greedy and the human captions of the batch; by this or another `retriever`."""
        captions = (self.search, Greedy(), Forced(learns=False))
        return Contrastive(
            retriever or self.retriever, captions, self.retriever.temperature, directions, combine, clamp
        )


def heads(rewards: RewardModels, speaker: Decoder) -> Method:
    """Both heads learn before joint training: one tells people's captions from the speaker's, one from broken ones."""
    agents = {"speaker": speaker, "discriminator": rewards.discriminator, "grammar": rewards.grammar}
    odds = LogOdds(rewards.retriever, rewards.discriminator), LogOdds(rewards.retriever, rewards.grammar)
    terms = (
        Term("discriminator", 1.0, odds[0], TellingApart(rewards.search), DISCRIMINATOR),
        Term("grammar", 1.0, odds[1], TellingApart(Broken()), GRAMMAR),
    )
    return Method(agents, terms, Turns((DISCRIMINATOR | GRAMMAR,)))


def trajectories(
    contrastive: Contrastive, rewards: RewardModels, alpha: float, *along: Channel, weighting: Weighting = "word"
) -> tuple[Term, ...]:
    """α · r_bicont + (1 − α) · P_D by the likelihood of captions through each channel of `along` (Eq. 3)."""
    terms = []
    for channel in along:
        learned, of = ScoreFunction(channel, weighting=weighting), "_of_human" if isinstance(channel, Forced) else ""
        terms.append(Term(f"discriminability{of}", alpha, contrastive, learned, SPEAKER))
        terms.append(Term(f"naturalness{of}", 1 - alpha, rewards.human, learned, SPEAKER))
    return tuple(term for term in terms if term.weight)


def with_discriminator(method: Method, rewards: RewardModels, channel: Channel) -> Method:
    """`method`, whose discriminator learns at the beginning of every step to tell captions through `channel` apart."""
    odds = LogOdds(rewards.retriever, rewards.discriminator)
    telling = Term("discriminator", 1.0, odds, TellingApart(channel), DISCRIMINATOR)
    order = tuple(learners | DISCRIMINATOR for learners in method.turns.order)
    return replace(
        method,
        agents={**method.agents, "discriminator": rewards.discriminator},
        terms=(telling, *method.terms),
        turns=replace(method.turns, order=order, early=DISCRIMINATOR),
        rates={**method.rates, "discriminator": rewards.rate},
        watching=rewards.watching,
    )
