"""The gradient estimators that are measured, with their settings; one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from pipeline.channels.forced import Forced
from pipeline.channels.partial import Feed, Mix, PartialSampling
from pipeline.channels.straight_through import Gumbel, GumbelRao, ReinMax, StraightThrough
from pipeline.channels.words import Multinomial
from pipeline.estimators.baselines import ByGroup, Centred, GroupMean, LeaveOneOut, SelfCritical
from pipeline.estimators.relax import Relax
from pipeline.estimators.surrogate import NoBaseline, Pathwise, ScoreFunction
from pipeline.models.critic import Control
from pipeline.models.decoder import Decoder
from pipeline.protocols import Baseline, Estimator

RHOS = (0.0, 0.25, 0.5, 0.75, 1.0)
TEMPERATURES = (0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Candidate:
    """An estimator; `of` makes it for a number of captions per image, at least `least`, and for a speaker."""

    name: str
    of: Callable[[int, Decoder], Estimator]
    settings: Mapping[str, float] = field(default_factory=dict)  # rho or temperature: what varies along its line
    least: int = 1


def score_function(name: str, baseline: Baseline, least: int = 1) -> Candidate:
    """REINFORCE minus `baseline`."""
    return Candidate(f"REINFORCE, {name}", lambda k, _: ScoreFunction(Multinomial(k), baseline), least=least)


def with_control(samples: int, speaker: Decoder) -> Relax:
    """RELAX, its control not yet trained."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        control = Control(speaker.hidden, speaker.vocabulary + 1, 4 * speaker.hidden)
    return Relax(ScoreFunction(Multinomial(samples)), control.to(speaker.word.weight.dtype))


def straight_through_gumbel(tau: float) -> Candidate:
    """ST-Gumbel at one temperature."""
    return Candidate("ST-Gumbel", lambda k, _: Pathwise(Gumbel(k, temperature=tau)), {"temperature": tau})


def partially_sampled(
    name: str, inner: Callable[[int], StraightThrough], mix: Mix = "caption", feed: Feed = "distribution"
) -> tuple[Candidate, ...]:
    """PSST along ρ."""

    def at(rho: float) -> Candidate:
        return Candidate(name, lambda k, _: Pathwise(PartialSampling(inner(k), rho, mix, feed)), {"rho": rho})

    return tuple(at(rho) for rho in RHOS)


ESTIMATORS: tuple[Candidate, ...] = (
    score_function("no baseline", NoBaseline()),
    score_function("greedy", SelfCritical()),
    score_function("ground truth", SelfCritical(Forced(learns=False))),
    score_function("greedy, centred", Centred(SelfCritical()), least=2),
    score_function("leave one out (RLOO)", LeaveOneOut(), least=2),
    score_function("mean of the group", GroupMean(), least=2),
    Candidate(
        "REINFORCE, mean and deviation of the group (GRPO)",
        lambda k, _: ScoreFunction(Multinomial(k), GroupMean(), scaling=ByGroup()),
        least=2,
    ),
    Candidate("REINFORCE, learned control (RELAX)", with_control),
    Candidate("ST-Multinomial", lambda k, _: Pathwise(StraightThrough(k))),
    Candidate("ST-Multinomial, soft ending", lambda k, _: Pathwise(StraightThrough(k, "soft"))),
    *map(straight_through_gumbel, TEMPERATURES),
    Candidate("ReinMax", lambda k, _: Pathwise(ReinMax(k))),
    Candidate("ReinMax, soft ending", lambda k, _: Pathwise(ReinMax(k, "soft"))),
    Candidate("Gumbel-Rao, k = 10", lambda k, _: Pathwise(GumbelRao(k))),
    *partially_sampled("PSST-Multinomial", StraightThrough),
    *partially_sampled("PSST-Multinomial, soft ending", lambda k: StraightThrough(k, "soft")),
    *partially_sampled("PSST-Multinomial, along samples", StraightThrough, feed="sample"),
    *partially_sampled("PSST-Multinomial, by word", StraightThrough, mix="token"),
    *partially_sampled("PSST-Gumbel", Gumbel),
    *partially_sampled("PSST-ReinMax", ReinMax),
    *partially_sampled("PSST-Gumbel-Rao", GumbelRao),
)
