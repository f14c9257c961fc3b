"""What a method is: weighted terms, each a score and how its gradient reaches the speaker, and who learns when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from pipeline import ranks
from pipeline.baselines import ByBatch, ByGroup, Centred, GroupMean, LeaveOneOut, NoBaseline, Raw, SelfCritical
from pipeline.channels import Forced, Greedy, Multinomial
from pipeline.errors import UserError
from pipeline.estimators import Pathwise, ScoreFunction
from pipeline.metrics.cider import CiderD
from pipeline.metrics.texts import Texts
from pipeline.models.critic import Controls, Critic
from pipeline.models.guided import Guided
from pipeline.models.listener import Listener
from pipeline.models.speaker import Speaker
from pipeline.protocols import Baseline, Estimator, Scaling, Score
from pipeline.rollouts import StepRollouts
from pipeline.scores.discriminability import Hinge
from pipeline.scores.naturalness import Cider, Given
from pipeline.types import Batch, Losses, Report, Role

Expecting = Literal["greedy", "leave_one_out", "group", "ground_truth", "none"]


@dataclass(frozen=True)
class Agents:
    """Who plays, and the human captions that naturalness is measured against. Pretraining has one role alone."""

    speaker: Speaker = None  # type: ignore[assignment]
    listener: Listener = None  # type: ignore[assignment]
    cider: CiderD = None  # type: ignore[assignment]
    texts: Texts = None  # type: ignore[assignment]
    critic: Critic | Controls = None  # type: ignore[assignment]

    def present(self) -> dict[Role, nn.Module]:
        """The agents that there are."""
        everybody = {Role.SPEAKER: self.speaker, Role.LISTENER: self.listener, Role.CRITIC: self.critic}
        return {role: agent for role, agent in everybody.items() if agent is not None}


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


@dataclass(frozen=True)
class Term:
    """One thing that is wanted: `weight` times `score`, reached through `estimator`, of those whom it `teaches`."""

    name: str
    weight: float
    score: Score
    estimator: Estimator
    teaches: frozenset[Role] = frozenset(Role)

    def __post_init__(self) -> None:
        if isinstance(self.estimator, Pathwise) and not self.score.differentiable:
            raise UserError(
                f"term {self.name}: {type(self.score).__name__} is not differentiable in what was said, "
                "so no gradient goes through the words: use ScoreFunction"
            )
        if isinstance(self.estimator, ScoreFunction) and self.estimator.channel.relaxes:
            raise UserError(
                f"term {self.name}: words of {type(self.estimator.channel).__name__} pass their gradient to a "
                "distribution and keep no log-probability: use Pathwise, or ScoreFunction(Multinomial())"
            )


@dataclass(frozen=True)
class Turns:
    """Who learns in which step: `first` alone for `alone` steps, then the sets of `order` take turns."""

    order: tuple[frozenset[Role], ...]
    first: frozenset[Role] = frozenset()
    alone: int = 0

    def learners(self, step: int) -> frozenset[Role]:
        return self.first if step < self.alone else self.order[(step - self.alone) % len(self.order)]

    @property
    def everybody(self) -> frozenset[Role]:
        """Who learns at any time."""
        return self.first.union(*self.order)


SPEAKER, LISTENER, CRITIC = (frozenset({role}) for role in (Role.SPEAKER, Role.LISTENER, Role.CRITIC))
SPEAKER_ONLY, LISTENER_ONLY, JOINT = Turns((SPEAKER,)), Turns((LISTENER,)), Turns((SPEAKER | LISTENER,))
ALTERNATE = Turns((SPEAKER, LISTENER))


@dataclass(frozen=True)
class Method:
    """A training objective: the sum of its terms' surrogates."""

    agents: Agents
    terms: tuple[Term, ...]
    turns: Turns
    normalise: bool = False  # see Objective
    image_dropout: float = 0.0  # the share of images in whose place the speaker sees its null image
    gamma: float = 1.0  # guidance of the speaker that comes out; it learns and is validated without

    def __post_init__(self) -> None:
        if self.gamma != 1 and self.agents.speaker.null is None:
            raise UserError(
                f"gamma = {self.gamma:g}: the pretrained speaker has no null image to be guided away from; set "
                "pretrain.speaker.image_dropout in params.yaml, 0.1 say, and run pretrain@speaker again"
            )

    def step(self, batch: Batch, seed: int) -> tuple[Losses, Report]:
        """The named losses of `batch`, weighted, to be differentiated together, and what is worth logging.

        Of a batch of which ranks hold parts, losses add up over ranks, and reports average.

        A term that teaches nobody whose turn it is is left out. Nothing here waits for the device.
        """
        rollouts = StepRollouts(self.agents.speaker, batch, seed)
        learners = self.turns.learners(batch.step)
        losses: Losses = {}
        report: Report = {}
        for term in self.terms:
            if not term.teaches & learners:
                continue
            loss, seen = term.estimator.surrogate(term.score, rollouts)
            losses[term.name] = term.weight * loss
            report[f"{term.name}/loss"] = loss.detach() * ranks.size()
            report |= {f"{term.name}/{name}": value for name, value in seen.items()}
        return losses, report

    @property
    def weights(self) -> dict[str, float]:
        """The weight that is in each loss, by its name."""
        return {term.name: term.weight for term in self.terms}

    def modules(self) -> dict[str, nn.Module]:
        """Everything with a state: the agents, and the scores that count steps."""
        scores = {f"score.{t.name}": t.score for t in self.terms if isinstance(t.score, nn.Module)}
        return {**{role.value: agent for role, agent in self.agents.present().items()}, **scores}

    def trained(self) -> dict[Role, nn.Module]:
        """The agents that come out: a speaker that is guided where `gamma` is not 1."""
        agents = self.agents.present()
        return agents if self.gamma == 1 else agents | {Role.SPEAKER: Guided.of(self.agents.speaker, self.gamma)}

    def freeze(self, step: int) -> frozenset[Role]:
        """Let those learn whose turn it is, and nobody else; returns them."""
        learners = self.turns.learners(step)
        for role, agent in self.agents.present().items():
            agent.requires_grad_(role in learners)
        return learners


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
    return Method(agents, tuple(term for term in terms if term.weight), turns, objective.normalise)
