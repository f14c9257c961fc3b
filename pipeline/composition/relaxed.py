"""RELAX in any method: a learned control variate for each term that goes by the likelihood of drawn captions."""

from __future__ import annotations

from dataclasses import replace

from pipeline.channels.words import Multinomial
from pipeline.composition.method import CRITIC, SPEAKER, Method, Term
from pipeline.errors import UserError
from pipeline.estimators.relax import Relax
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.models.critic import Control, Controls


def relaxed(method: Method) -> Method:
    """`method` with a control for each such term, if it has any; they learn whenever the speaker does.

    Raises UserError where the method has a critic of its own.
    """
    names = [term.name for term in method.terms if _controllable(term)]
    if not names:
        return method
    if "critic" in method.agents:
        raise UserError("train.objective.control: relax: this method has a learned baseline; set control to none")
    speaker = method.speaker
    assert speaker is not None
    controls = Controls(names, speaker.hidden, speaker.vocabulary + 1, speaker.hidden)
    terms = []
    for term in method.terms:
        if term.name in names:
            assert isinstance(term.estimator, ScoreFunction)
            teaches = None if term.teaches is None else term.teaches | CRITIC
            control = controls[term.name]
            assert isinstance(control, Control)
            term = replace(term, estimator=Relax(term.estimator, control), teaches=teaches)
        terms.append(term)
    order = tuple(learners | CRITIC if learners & SPEAKER else learners for learners in method.turns.order)
    agents = {**method.agents, "critic": controls}
    return replace(method, agents=agents, terms=tuple(terms), turns=replace(method.turns, order=order))


def _controllable(term: Term) -> bool:
    estimator = term.estimator
    if not isinstance(estimator, ScoreFunction) or not isinstance(estimator.channel, Multinomial):
        return False
    return estimator == ScoreFunction(estimator.channel, estimator.baseline, estimator.reduction)
