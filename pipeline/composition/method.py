"""What a method is: weighted terms, each with a score and how its gradient reaches the speaker, and who learns when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import nn

from pipeline.errors import UserError
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import Pathwise, ScoreFunction
from pipeline.models.decoder import Decoder
from pipeline.models.guided import Guided
from pipeline.models.retriever import Retriever
from pipeline.protocols import Comparing, Estimator, Score
from pipeline.runtime import ranks
from pipeline.types import Batch, Losses, Report


@dataclass(frozen=True)
class Term:
    """`weight` times `score`, reached through `estimator`; it `teaches` some roles, None: all."""

    name: str
    weight: float
    score: Score | Comparing
    estimator: Estimator
    teaches: frozenset[str] | None = None

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
    """Who learns in which step: `first` alone for `alone` steps, then the sets of `order` take turns.

    Of those who learn in a step, the ones in `early` are through with it when the others begin.
    """

    order: tuple[frozenset[str], ...]
    first: frozenset[str] = frozenset()
    alone: int = 0
    early: frozenset[str] = frozenset()

    def learners(self, step: int) -> frozenset[str]:
        return self.first if step < self.alone else self.order[(step - self.alone) % len(self.order)]

    def rounds(self, step: int) -> tuple[frozenset[str], ...]:
        """The learners of `step`, one set after the other."""
        learners = self.learners(step)
        return tuple(now for now in (learners & self.early, learners - self.early) if now)

    @property
    def everybody(self) -> frozenset[str]:
        """Who learns at any time."""
        return self.first.union(*self.order)


SPEAKER, LISTENER, CRITIC, DISCRIMINATOR, GRAMMAR = (
    frozenset({role}) for role in ("speaker", "listener", "critic", "discriminator", "grammar")
)
SPEAKER_ONLY, LISTENER_ONLY, JOINT = Turns((SPEAKER,)), Turns((LISTENER,)), Turns((SPEAKER | LISTENER,))
ALTERNATE = Turns((SPEAKER, LISTENER))


@dataclass(frozen=True)
class Method:
    """A training objective: the sum of its terms' surrogates.

    `agents` by role; any role may have a part in terms and turns, and the one named speaker says the captions.
    """

    agents: Mapping[str, nn.Module]
    terms: tuple[Term, ...]
    turns: Turns
    normalise: bool = False  # see Objective
    image_dropout: float = 0.0  # the share of images in whose place the speaker sees its null image
    gamma: float = 1.0  # guidance of the speaker that comes out; it learns and is validated without
    rates: Mapping[str, float] = field(default_factory=dict)  # roles whose learning rate is their own, and constant
    # whose recall is validated beside the listener's, by the prefix of its name: what rewards captions, and a judge
    watching: Mapping[str, Retriever] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gamma != 1 and getattr(self.speaker, "null", None) is None:
            raise UserError(
                f"gamma = {self.gamma:g}: the pretrained speaker has no null image to be guided away from; set "
                "pretrain.speaker.image_dropout in params.yaml, 0.1 say, and run pretrain@speaker again"
            )

    @property
    def speaker(self) -> Decoder | None:
        """Who says the captions; None where only human ones are heard."""
        speaker = self.agents.get("speaker")
        assert speaker is None or isinstance(speaker, Decoder)
        return speaker

    def step(self, batch: Batch, seed: int) -> tuple[Losses, Report]:
        """The named losses of `batch`, weighted, to be differentiated together, and what is worth logging.

        Of a batch of which ranks hold parts, losses add up over ranks, and reports average.

        A term that teaches nobody whose turn it is is left out. Nothing here waits for the device.
        """
        losses: Losses = {}
        report: Report = {}
        for _, some, seen in self.rounds(batch, seed):
            losses |= some
            report |= seen
        return losses, report

    def rounds(self, batch: Batch, seed: int) -> Iterator[tuple[frozenset[str], Losses, Report]]:
        """`step` in parts: who learns now, and from what; the next part is made of what these have learned.

        All of them hear the same captions.
        """
        rollouts = StepRollouts(self.speaker, batch, seed)
        parts = self.turns.rounds(batch.step)
        for learners in parts:
            losses: Losses = {}
            report: Report = {}
            for term in self.terms:
                if not (learners & term.teaches if term.teaches is not None else learners == parts[-1]):
                    continue
                score = term.score.among(rollouts) if isinstance(term.score, Comparing) else term.score
                loss, seen = term.estimator.surrogate(score, rollouts)
                losses[term.name] = term.weight * loss
                report[f"{term.name}/loss"] = loss.detach() * ranks.size()
                report |= {f"{term.name}/{name}": value for name, value in seen.items()}
            yield learners, losses, report

    @property
    def weights(self) -> dict[str, float]:
        """The weight that is in each loss, by its name."""
        return {term.name: term.weight for term in self.terms}

    def modules(self) -> dict[str, nn.Module]:
        """Everything with a state: the agents, and the scores that count steps."""
        scores = {f"score.{t.name}": t.score for t in self.terms if isinstance(t.score, nn.Module)}
        return {**self.agents, **scores}

    def trained(self) -> dict[str, nn.Module]:
        """The agents that come out: a speaker that is guided where `gamma` is not 1."""
        if self.gamma == 1 or self.speaker is None:
            return dict(self.agents)
        return {**self.agents, "speaker": Guided(self.speaker, self.gamma)}

    def freeze(self, step: int) -> frozenset[str]:
        """Let those learn whose turn it is, and nobody else; returns them."""
        learners = self.turns.learners(step)
        for role, agent in self.agents.items():
            agent.requires_grad_(role in learners)
        return learners
