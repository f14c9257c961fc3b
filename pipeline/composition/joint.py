"""What methods of joint training share: who plays, the objective's settings, and the trade-off of two ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from pipeline.channels.forced import Forced
from pipeline.channels.words import Greedy, Multinomial
from pipeline.composition.method import CRITIC, JOINT, LISTENER, SPEAKER, Method, Term, Turns
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

Expecting = Literal["greedy", "leave_one_out", "group", "ground_truth", "none"]


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


@dataclass(frozen=True)
class Objective:
    """What all methods of one comparison share; the defaults are the papers' (PAPERS.md has the evidence)."""

    margin: float = 0.2
    """Of the hinge: 0.2 in the code of all compared systems; PSST's Eq. 4 prints 1."""
    hinge: Literal["hardest", "all"] = "hardest"
    """Negatives: the hardest of the batch, or the mean over all of it."""
    reduction: Literal["sum", "mean"] = "sum"
    """Of a differentiable score over the batch; the sum is why the paper's λ are tiny."""
    greedy_dropout: bool = False
    """Whether the greedy baseline keeps its dropout, as the published code does."""
    centre: bool = False
    """Whether advantages are centred over the batch."""
    anchor: float = 0.0
    """Weight, times 1 − λ, of the cross-entropy of a human caption; none of the papers has it."""
    ending: Literal["constant", "soft"] = "constant"
    """How a listener hears the EOS that ends a caption: without a gradient, or like any word."""
    normalise: bool = False
    """Whether each term's gradient is scaled to norm 1, agent by agent, before it is weighted: one λ scale for all."""
    samples: int = 1
    """Captions an image that score-function terms draw; to compare with each other they need two or more."""
    baseline: Expecting = "greedy"
    """What such terms expect of a caption: the score of the greedy one, the mean over the image's other samples or over
    all of them, the score of the human caption, nothing."""
    scaling: Literal["none", "group", "batch"] = "none"
    """What their advantages are divided by: the standard deviation over the image's samples (GRPO), or over the batch,
    term by term, so that λ weighs terms of one scale."""
    control: Literal["none", "relax"] = "none"
    """Whether each such term has a control variate that is learned beside (RELAX)."""

    def hinge_of(self, listener: Listener) -> Hinge:
        return Hinge(listener, self.margin, self.hinge)

    def greedy(self) -> SelfCritical:
        """The baseline of self-critical training: the score of the greedy caption."""
        return SelfCritical(Greedy(dropout=self.greedy_dropout))

    def expecting(self, baseline: Expecting) -> Baseline:
        """The baseline of that name."""
        named: dict[Expecting, Baseline] = {
            "greedy": self.greedy(),
            "leave_one_out": LeaveOneOut(),
            "group": GroupMean(),
            "ground_truth": SelfCritical(Forced(learns=False)),
            "none": NoBaseline(),
        }
        return named[baseline]

    def by_likelihood(self, baseline: Expecting | None = None, channel: Multinomial | None = None) -> ScoreFunction:
        """REINFORCE on ordinary samples; `baseline` and `channel` where they are other than the objective's."""
        expected = self.expecting(self.baseline if baseline is None else baseline)
        scalings: dict[str, Scaling] = {"none": Raw(), "group": ByGroup(), "batch": ByBatch()}
        return ScoreFunction(
            Multinomial(self.samples) if channel is None else channel,
            Centred(expected) if self.centre else expected,
            scaling=scalings[self.scaling],
        )


def tradeoff(
    agents: Agents,
    objective: Objective,
    lam: float,
    discriminability: Estimator,
    turns: Turns,
    listening: Estimator | None = None,
) -> Method:
    """λ · discriminability + (1 − λ) · CIDEr-D (PSST Eq. 3). A term of weight 0 is left out.

    The hinge crosses by `discriminability`, CIDEr-D by likelihood; with `objective.anchor` the cross-entropy of a human
    caption is a third term. With `listening` the listener learns the hinge by that estimator, the speaker by the other.
    """
    hinge = objective.hinge_of(agents.listener)
    terms = [
        Term("discriminability", lam, hinge, discriminability, SPEAKER if listening else SPEAKER | LISTENER),
        Term("naturalness", 1 - lam, Cider(agents.cider), objective.by_likelihood(), SPEAKER),
        Term("anchor", (1 - lam) * objective.anchor, Given(), ScoreFunction(Forced()), SPEAKER),
    ]
    if listening:
        terms.append(Term("listening", lam, hinge, listening, LISTENER))
    return Method(agents.roles, tuple(term for term in terms if term.weight), turns, objective.normalise)


def through_words(agents: Agents, objective: Objective, lam: float, channel: Channel) -> Method:
    """Both learn; the hinge's gradient reaches the speaker through the words of `channel`."""
    return tradeoff(agents, objective, lam, Pathwise(channel, objective.reduction), JOINT)


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
    """λ · hinge by likelihood + (1 − λ) · score minus what a critic, which learns beside, expects."""
    critic = Critic(agents.speaker.hidden, hidden)
    expected = Learned(critic, channel)
    terms = (
        Term("discriminability", lam, objective.hinge_of(agents.listener), objective.by_likelihood(), SPEAKER),
        Term("naturalness", 1 - lam, score, ScoreFunction(channel, expected, credit=credit, words=words), SPEAKER),
        Term("critic", 1.0, score, Regression(channel, critic, credit, words), CRITIC),
    )
    turns = Turns((SPEAKER | CRITIC,), CRITIC, alone)
    used = tuple(term for term in terms if term.weight)
    return Method({**agents.roles, "critic": critic}, used, turns, objective.normalise)
