"""Methods: weighted terms, each with a score and an estimator, and a schedule of updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import nn

from pipeline.errors import UserError
from pipeline.estimators.rollouts import StepRollouts
from pipeline.estimators.surrogate import Pathwise, ScoreFunction
from pipeline.models.decoder import Decoder
from pipeline.models.guided import GuidedDecoder
from pipeline.models.retriever import Retriever
from pipeline.protocols import Baseline, BatchScore, Estimator, Score
from pipeline.runtime import ranks
from pipeline.types import Batch, Losses, Report


@dataclass(frozen=True)
class Term:
    """One term of an objective: `weight` times `score`, estimated by `estimator`.

    The term trains the roles `updates`; None: all roles. Raises UserError where the score or the channel does not fit
    the estimator.
    """

    name: str
    weight: float
    score: Score | BatchScore
    estimator: Estimator
    updates: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.estimator, Pathwise) and not self.score.differentiable:
            raise UserError(
                f"term {self.name}: {type(self.score).__name__} has no gradient with respect to the tokens, "
                "which Pathwise needs: use ScoreFunction"
            )
        if isinstance(self.estimator, ScoreFunction) and self.estimator.channel.relaxes:
            raise UserError(
                f"term {self.name}: tokens of {type(self.estimator.channel).__name__} have no log-probability, which "
                "ScoreFunction needs: use Pathwise, or ScoreFunction(Multinomial())"
            )


@dataclass(frozen=True)
class UpdateSchedule:
    """The roles that are trained in each step: `warmup` for `warmup_steps` steps, then the sets of `order` in turn.

    Among the roles of a step, those in `early` are updated before the others.
    """

    order: tuple[frozenset[str], ...]
    warmup: frozenset[str] = frozenset()
    warmup_steps: int = 0
    early: frozenset[str] = frozenset()

    def roles(self, step: int) -> frozenset[str]:
        """Return the roles that `step` updates."""
        return self.warmup if step < self.warmup_steps else self.order[(step - self.warmup_steps) % len(self.order)]

    def list_updates(self, step: int) -> tuple[frozenset[str], ...]:
        """Return the sets of roles that `step` updates, one after the other."""
        updated = self.roles(step)
        return tuple(roles for roles in (updated & self.early, updated - self.early) if roles)

    @property
    def all_roles(self) -> frozenset[str]:
        """Return all roles that are trained in some step."""
        return self.warmup.union(*self.order)


SPEAKER, LISTENER, CRITIC, DISCRIMINATOR, GRAMMAR = (
    frozenset({role}) for role in ("speaker", "listener", "critic", "discriminator", "grammar")
)
SPEAKER_ONLY, LISTENER_ONLY, JOINT = (
    UpdateSchedule((SPEAKER,)),
    UpdateSchedule((LISTENER,)),
    UpdateSchedule((SPEAKER | LISTENER,)),
)
ALTERNATE = UpdateSchedule((SPEAKER, LISTENER))


@dataclass(frozen=True)
class Method:
    """A training objective: the sum of its terms' surrogates; terms of weight 0 are dropped.

    `agents` are networks by role. Terms and the schedule may name any role; the role `speaker` generates the captions.
    Raises UserError where `gamma` is not 1 and the speaker has no null image.
    """

    agents: Mapping[str, nn.Module]
    terms: tuple[Term, ...]
    schedule: UpdateSchedule
    normalise_gradients: bool = False  # see Objective
    image_dropout: float = 0.0  # the probability that the speaker's null image replaces an image
    gamma: float = 1.0  # guidance of the final speaker; training and validation use none
    rates: Mapping[str, float] = field(default_factory=dict)  # constant learning rates by role, in place of the run's
    # further retrievers whose recall is validated, by metric prefix: the reward's retriever and a judge
    validation_judges: Mapping[str, Retriever] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", tuple(term for term in self.terms if term.weight))
        if self.gamma != 1 and getattr(self.speaker, "null", None) is None:
            raise UserError(
                f"gamma = {self.gamma:g}: guidance needs the null image of the pretrained speaker, which has none; set "
                "image_dropout of this speaker in pretrain, for example to 0.1, and run its pretrain stage again"
            )

    @property
    def speaker(self) -> Decoder | None:
        """Return the network that generates captions; None where only human captions are encoded."""
        speaker = self.agents.get("speaker")
        assert speaker is None or isinstance(speaker, Decoder)
        return speaker

    def step(self, batch: Batch, seed: int) -> tuple[Losses, Report]:
        """Compute the weighted losses of `batch` by name, to be differentiated together, and a report to be logged.

        Where ranks hold parts of a batch, losses are summed over ranks and reports averaged.
        Terms that update no scheduled role are skipped. Only scores of text, corrupted captions, networks of dialogs,
        and exchanges between ranks synchronise with the device.
        """
        losses: Losses = {}
        report: Report = {}
        for _, parts, values in self.rounds(StepRollouts(self.speaker, batch, seed), batch.step):
            losses |= parts
            report |= values
        return losses, report

    def rounds(self, rollouts: StepRollouts, step: int) -> Iterator[tuple[frozenset[str], Losses, Report]]:
        """Yield the parts of training step `step`: the roles to update, their losses and a report.

        The next part is computed after these roles' update. All parts use the captions of `rollouts`.
        """
        parts = self.schedule.list_updates(step)
        for roles in parts:
            losses: Losses = {}
            report: Report = {}
            for term in self.terms:
                # a term that updates all roles is computed once, in the last part
                updated = roles == parts[-1] if term.updates is None else bool(roles & term.updates)
                if not updated:
                    continue
                score = term.score.bind_batch(rollouts) if isinstance(term.score, BatchScore) else term.score
                loss, values = term.estimator.surrogate(score, rollouts)
                losses[term.name] = term.weight * loss
                report[f"{term.name}/loss"] = loss.detach() * ranks.count_ranks()
                report |= {f"{term.name}/{name}": value for name, value in values.items()}
            yield roles, losses, report

    @property
    def weights(self) -> dict[str, float]:
        """Return the weight contained in each loss, by the loss's name."""
        return {term.name: term.weight for term in self.terms}

    def modules(self) -> dict[str, nn.Module]:
        """Return every module with state: the agents, and the scores and baselines that are modules."""
        modules: dict[str, nn.Module] = dict(self.agents)
        for term in self.terms:
            for kind, part in (("score", term.score), ("baseline", _find_baseline(term.estimator))):
                if isinstance(part, nn.Module):
                    modules[f"{kind}.{term.name}"] = part
        return modules

    def final_agents(self) -> dict[str, nn.Module]:
        """Return the agents after training; the speaker is guided where `gamma` is not 1."""
        if self.gamma == 1 or self.speaker is None:
            return dict(self.agents)
        return {**self.agents, "speaker": GuidedDecoder(self.speaker, self.gamma)}

    def freeze(self, step: int) -> frozenset[str]:
        """Unfreeze the agents scheduled for `step`, freeze all others, and return the scheduled roles."""
        roles = self.schedule.roles(step)
        for role, agent in self.agents.items():
            agent.requires_grad_(role in roles)
        return roles


def _find_baseline(estimator: Estimator) -> Baseline | None:
    """Return the baseline of a score-function estimator, with or without a control variate; else None."""
    inner = getattr(estimator, "inner", estimator)  # a control variate wraps its estimator
    return inner.baseline if isinstance(inner, ScoreFunction) else None
