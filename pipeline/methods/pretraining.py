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


def guidance(agents: Agents, objective: Objective, lam: float = 0.0, image_dropout: float = 0.1) -> Method:
    """`mle`, and a null image that the speaker can be guided away from by gamma (Kornblith et al. 2023)."""
    return teacher_forcing(agents, image_dropout=image_dropout)


def teacher_forcing(agents: Agents, scheduled: ScheduledSampling | None = None, image_dropout: float = 0.0) -> Method:
    """Maximum likelihood: the score-function surrogate of the score 1 over forced words is the cross-entropy.

    With `image_dropout` the speaker learns a null image from that share of the captions.
    """
    if image_dropout:
        agents.speaker.add_null_image()
    likelihood = Term("likelihood", 1.0, Given(), ScoreFunction(Forced(scheduled)))
    return Method(agents, (likelihood,), SPEAKER_ONLY, image_dropout=image_dropout)


def matching(agents: Agents, score: Score) -> Method:
    """A listener learns to match human captions and images (VSE++, Faghri et al. 2018)."""
    return Method(agents, (Term("matching", 1.0, score, Detached(Forced(learns=False))),), LISTENER_ONLY)
