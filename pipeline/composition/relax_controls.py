"""RELAX in any method: a learned control variate for score-function terms on sampled captions."""

from __future__ import annotations

from dataclasses import replace

from pipeline.channels.hard import Multinomial
from pipeline.composition.method import CRITIC, SPEAKER, Method, Term
from pipeline.errors import UserError
from pipeline.estimators.relax import RelaxEstimator
from pipeline.estimators.surrogate import ScoreFunction
from pipeline.models.critic import ControlVariate, ControlVariates


def add_relax(method: Method) -> Method:
    """Add a control variate to each score-function term of `method` on multinomial samples.

    A term with scaled advantages, or with another credit, weighting or selection of words than the default, gets no
    control. The controls are trained whenever the speaker is. Where no term gets a control, the result is `method`
    itself. Raises UserError where a term would get a control and the method has a critic already.
    """
    names = [term.name for term in method.terms if _is_controllable(term)]
    if not names:
        return method
    if "critic" in method.agents:
        raise UserError(
            "train.objective.control_variate = relax: this method has a learned baseline; set control_variate to none"
        )
    speaker = method.speaker
    assert speaker is not None
    controls = ControlVariates(names, speaker.hidden, speaker.vocabulary + 1, speaker.hidden)
    terms = []
    for term in method.terms:
        if term.name in names:
            assert isinstance(term.estimator, ScoreFunction)
            updates = None if term.updates is None else term.updates | CRITIC
            control = controls[term.name]
            assert isinstance(control, ControlVariate)
            term = replace(term, estimator=RelaxEstimator(term.estimator, control), updates=updates)
        terms.append(term)
    order = tuple(roles | CRITIC if roles & SPEAKER else roles for roles in method.schedule.order)
    agents = {**method.agents, "critic": controls}
    return replace(method, agents=agents, terms=tuple(terms), schedule=replace(method.schedule, order=order))


def _is_controllable(term: Term) -> bool:
    estimator = term.estimator
    if not isinstance(estimator, ScoreFunction) or not isinstance(estimator.channel, Multinomial):
        return False
    # a control variate supports the default of every other option
    return estimator == ScoreFunction(estimator.channel, estimator.baseline, estimator.reduction)
