"""Gradient estimators to be measured, with their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from pipeline.channels.hard import Multinomial
from pipeline.channels.partial import Feed, MixUnit, PartialSampling
from pipeline.channels.straight_through import Gumbel, GumbelRao, ReinMax, StraightThrough
from pipeline.channels.teacher_forcing import TeacherForcing
from pipeline.estimators.baselines import CentredBaseline, GroupMean, GroupStd, LeaveOneOut, SelfCritical
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.surrogate import NoBaseline, Pathwise, ScoreFunction
from pipeline.models.critic import ControlVariate
from pipeline.models.decoder import Decoder
from pipeline.protocols import Baseline, Estimator

RHOS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEMPERATURES = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class EstimatorCandidate:
    """Gradient estimator to be measured.

    `build` returns the estimator for a number of captions per image, at least `min_samples`, and a speaker.
    """

    name: str
    build: Callable[[int, Decoder], Estimator]
    settings: Mapping[str, float] = field(default_factory=dict)  # rho or temperature, if it is varied
    min_samples: int = 1

    @property
    def label(self) -> str:
        """Return the name with the settings, for example "PSST-Multinomial, rho 0.5"."""
        return ", ".join([self.name, *(f"{key} {value:g}" for key, value in self.settings.items())])


def build_score_function_candidate(name: str, baseline: Baseline, min_samples: int = 1) -> EstimatorCandidate:
    """Return the candidate REINFORCE with `baseline`, which is subtracted from the score."""
    return EstimatorCandidate(
        f"REINFORCE, {name}", lambda k, _: ScoreFunction(Multinomial(k), baseline), min_samples=min_samples
    )


def build_relax_estimator(samples: int, speaker: Decoder) -> RelaxEstimator:
    """Build RELAX with an untrained control variate."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        control = ControlVariate(speaker.hidden, speaker.vocabulary + 1, 4 * speaker.hidden)
    return RelaxEstimator(ScoreFunction(Multinomial(samples)), control.to(speaker.word.weight.dtype))


def build_gumbel_candidate(tau: float) -> EstimatorCandidate:
    """Return the candidate ST-Gumbel at the temperature `tau`."""
    return EstimatorCandidate("ST-Gumbel", lambda k, _: Pathwise(Gumbel(k, temperature=tau)), {"temperature": tau})


def build_psst_candidates(
    name: str, inner: Callable[[int], StraightThrough], mix: MixUnit = "caption", feed: Feed = "distribution"
) -> tuple[EstimatorCandidate, ...]:
    """Return the candidates of PSST over the channel `inner`, one for each ρ of `RHOS`."""

    def build_candidate(rho: float) -> EstimatorCandidate:
        return EstimatorCandidate(name, lambda k, _: Pathwise(PartialSampling(inner(k), rho, mix, feed)), {"rho": rho})

    return tuple(build_candidate(rho) for rho in RHOS)


ESTIMATORS: tuple[EstimatorCandidate, ...] = (
    build_score_function_candidate("no baseline", NoBaseline()),
    build_score_function_candidate("greedy", SelfCritical()),
    build_score_function_candidate("ground truth", SelfCritical(TeacherForcing(requires_grad=False))),
    build_score_function_candidate("greedy, centred", CentredBaseline(SelfCritical()), min_samples=2),
    build_score_function_candidate("leave one out (RLOO)", LeaveOneOut(), min_samples=2),
    build_score_function_candidate("mean of the group", GroupMean(), min_samples=2),
    EstimatorCandidate(
        "REINFORCE, mean and deviation of the group (GRPO)",
        lambda k, _: ScoreFunction(Multinomial(k), GroupMean(), scaling=GroupStd()),
        min_samples=2,
    ),
    EstimatorCandidate("REINFORCE, learned control (RELAX)", build_relax_estimator),
    EstimatorCandidate("ST-Multinomial", lambda k, _: Pathwise(StraightThrough(k))),
    EstimatorCandidate("ST-Multinomial, soft ending", lambda k, _: Pathwise(StraightThrough(k, "soft"))),
    *map(build_gumbel_candidate, TEMPERATURES),
    EstimatorCandidate("ReinMax", lambda k, _: Pathwise(ReinMax(k))),
    EstimatorCandidate("ReinMax, soft ending", lambda k, _: Pathwise(ReinMax(k, "soft"))),
    EstimatorCandidate("Gumbel-Rao, k = 10", lambda k, _: Pathwise(GumbelRao(k))),
    *build_psst_candidates("PSST-Multinomial", StraightThrough),
    *build_psst_candidates("PSST-Multinomial, soft ending", lambda k: StraightThrough(k, "soft")),
    *build_psst_candidates("PSST-Multinomial, along samples", StraightThrough, feed="sample"),
    *build_psst_candidates("PSST-Multinomial, by word", StraightThrough, mix="token"),
    *build_psst_candidates("PSST-Gumbel", Gumbel),
    *build_psst_candidates("PSST-ReinMax", ReinMax),
    *build_psst_candidates("PSST-Gumbel-Rao", GumbelRao),
)
