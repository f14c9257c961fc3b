"""What methods of joint training share: who plays, what the objective's settings mean, the trade-off of two ends."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from pipeline.channels.forced import Forced
from pipeline.channels.partial import PartialSampling
from pipeline.channels.searched import Reread
from pipeline.channels.words import Greedy, Multinomial
from pipeline.composition.method import CRITIC, JOINT, LISTENER, SPEAKER, Method, Term, Turns
from pipeline.composition.objective import Expecting, Objective
from pipeline.errors import UserError
from pipeline.estimators.baselines import ByBatch, ByGroup, Centred, GroupMean, LeaveOneOut, SelfCritical
from pipeline.estimators.learned import Learned, Regression
from pipeline.estimators.surrogate import NoBaseline, Pathwise, Raw, ScoreFunction
from pipeline.metrics.cider import CiderD
from pipeline.metrics.texts import Texts
from pipeline.models.critic import Critic
from pipeline.models.decoder import Decoder
from pipeline.models.listener import Listener
from pipeline.protocols import Baseline, Channel, Credit, Estimator, Scaling, Score
from pipeline.scores.discriminability import Hinge
from pipeline.scores.naturalness import Cider, Given
from pipeline.types import Words


@dataclass(frozen=True)
class Agents:
    """Who plays, and the human captions that naturalness is measured against."""

    speaker: Decoder
    listener: Listener
    cider: CiderD
    texts: Texts

    @property
    def roles(self) -> dict[str, nn.Module]:
        """The networks by role, as a `Method` has them."""
        return {"speaker": self.speaker, "listener": self.listener}


def hinge_of(objective: Objective, listener: Listener) -> Hinge:
    """The hinge with the objective's margin and negatives."""
    return Hinge(listener, objective.margin, objective.hinge)


def expecting(objective: Objective, baseline: Expecting) -> Baseline:
    """The baseline of that name."""
    named: dict[Expecting, Baseline] = {
        "greedy": SelfCritical(Greedy(dropout=objective.greedy_dropout)),
        "leave_one_out": LeaveOneOut(),
        "group": GroupMean(),
        "ground_truth": SelfCritical(Forced(learns=False)),
        "none": NoBaseline(),
    }
    return named[baseline]


def by_likelihood(
    objective: Objective, baseline: Expecting | None = None, channel: Channel | None = None
) -> ScoreFunction:
    """REINFORCE on ordinary samples; `baseline` and `channel` where they are other than the objective's."""
    expected = expecting(objective, baseline or objective.baseline)
    scalings: dict[str, Scaling] = {"none": Raw(), "group": ByGroup(), "batch": ByBatch()}
    return ScoreFunction(
        Multinomial(objective.samples) if channel is None else channel,
        Centred(expected) if objective.centre else expected,
        scaling=scalings[objective.scaling],
    )


def tradeoff(
    agents: Agents,
    objective: Objective,
    lam: float,
    discriminability: Estimator,
    turns: Turns,
    listening: Estimator | None = None,
    naturalness: Estimator | None = None,
) -> Method:
    """λ · discriminability + (1 − λ) · CIDEr-D (PSST Eq. 3). A term of weight 0 is left out.

    The hinge crosses by `discriminability`, CIDEr-D by likelihood; with `objective.anchor` the cross-entropy of a human
    caption is a third term. With `listening` the listener learns the hinge by that estimator, the speaker by the other.
    `naturalness` is CIDEr-D's estimator where it is not that of the objective.
    """
    hinge = hinge_of(objective, agents.listener)
    terms = [
        Term("discriminability", lam, hinge, discriminability, SPEAKER if listening else SPEAKER | LISTENER),
        Term("naturalness", 1 - lam, Cider(agents.cider), naturalness or by_likelihood(objective), SPEAKER),
        Term("anchor", (1 - lam) * objective.anchor, Given(), ScoreFunction(Forced()), SPEAKER),
    ]
    if listening:
        terms.append(Term("listening", lam, hinge, listening, LISTENER))
    return Method(agents.roles, tuple(term for term in terms if term.weight), turns, objective.normalise)


def through_words(agents: Agents, objective: Objective, lam: float, channel: Channel) -> Method:
    """Both learn; the hinge's gradient reaches the speaker through the words of `channel`.

    Raises UserError where CIDEr-D shares a sample, and the objective asks for several.
    """
    shared = None
    if objective.cider_sample == "shared" and not isinstance(channel, PartialSampling):
        if objective.samples != 1:
            raise UserError(f"cider_sample shared goes with samples 1, not {objective.samples}: the listener hears one")
        shared = by_likelihood(objective, channel=Reread(channel))
    return tradeoff(agents, objective, lam, Pathwise(channel, objective.reduction), JOINT, naturalness=shared)


def with_critic(
    agents: Agents,
    objective: Objective,
    lam: float,
    score: Score,
    channel: Channel,
    credit: Credit,
    hidden: int,
    alone: int,
    words: Words = "all",
) -> Method:
    """λ · hinge by likelihood + (1 − λ) · score minus what a critic, which learns at the same time, expects."""
    critic = Critic(agents.speaker.hidden, hidden)
    expected = Learned(critic, channel)
    terms = (
        Term("discriminability", lam, hinge_of(objective, agents.listener), by_likelihood(objective), SPEAKER),
        Term("naturalness", 1 - lam, score, ScoreFunction(channel, expected, credit=credit, words=words), SPEAKER),
        Term("critic", 1.0, score, Regression(channel, critic, credit, words), CRITIC),
    )
    turns = Turns((SPEAKER | CRITIC,), CRITIC, alone)
    used = tuple(term for term in terms if term.weight)
    return Method({**agents.roles, "critic": critic}, used, turns, objective.normalise)
