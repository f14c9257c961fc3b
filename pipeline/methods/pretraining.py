"""Before anybody plays with anybody: speakers by maximum likelihood, listeners on human captions."""

from __future__ import annotations

from pipeline.channels import Forced, ScheduledSampling
from pipeline.estimators import Detached, ScoreFunction
from pipeline.methods.method import LISTENER_ONLY, SPEAKER_ONLY, Agents, Method, Objective, Term
from pipeline.protocols import Score
from pipeline.scores.naturalness import Given


def mle(agents: Agents, objective: Objective, lam: float = 0.0) -> Method:
    """Cross-entropy on human captions, from the pretrained speaker on: what more training alone would do."""
    return teacher_forcing(agents)


def teacher_forcing(agents: Agents, scheduled: ScheduledSampling | None = None) -> Method:
    """Maximum likelihood: the score-function surrogate of the score 1 over forced words is the cross-entropy."""
    return Method(agents, (Term("likelihood", 1.0, Given(), ScoreFunction(Forced(scheduled))),), SPEAKER_ONLY)


def matching(agents: Agents, score: Score) -> Method:
    """A listener learns to match human captions and images (VSE++, Faghri et al. 2018)."""
    return Method(agents, (Term("matching", 1.0, score, Detached(Forced(learns=False))),), LISTENER_ONLY)
