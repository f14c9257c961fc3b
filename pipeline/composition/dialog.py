"""What methods of visual dialog share: who plays, and likelihood beside what a discriminator says."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from pipeline.channels.forced import Forced
from pipeline.composition.method import SPEAKER, SPEAKER_ONLY, Method, Term, Turns
from pipeline.composition.objective import Objective
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.models.answering import Answering
from pipeline.models.discriminator import Discriminator
from pipeline.protocols import Estimator, Score
from pipeline.scores.answers import Preferred
from pipeline.scores.naturalness import Given


@dataclass(frozen=True)
class Interlocutors:
    """Who answers, and who knows a good answer; each has read the image, the history and the question by itself."""

    speaker: Answering
    listener: Discriminator

    @property
    def roles(self) -> dict[str, nn.Module]:
        """The networks by role, as a `Method` has them."""
        return {"speaker": self.speaker, "listener": self.listener}


def taught(
    agents: Interlocutors,
    objective: Objective,
    alpha: float,
    crossing: Estimator,
    turns: Turns = SPEAKER_ONLY,
    others: tuple[Term, ...] = (),
    norms: float = 0.0,
) -> Method:
    """The speaker learns to say what the discriminator prefers to the human answer, and α · likelihood.

    The first reaches it by `crossing`. With `turns` the discriminator learns, too, by the terms `others`.
    """
    preferred: Score = Preferred(agents.listener, norms=norms)
    terms = (
        Term("discriminability", 1.0, preferred, crossing, SPEAKER),
        Term("likelihood", alpha, Given(), ScoreFunction(Forced()), SPEAKER),
        *others,
    )
    return Method(agents.roles, tuple(term for term in terms if term.weight), turns, objective.normalise)
