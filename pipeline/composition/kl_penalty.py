"""The KL divergence from the starting speaker as a penalty, in any method that trains a speaker."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from pipeline.channels.hard import Multinomial
from pipeline.composition.method import SPEAKER, Method, Term
from pipeline.composition.objective import Objective
from pipeline.errors import UserError
from pipeline.estimators.baselines import LeaveOneOut
from pipeline.estimators.surrogate import NoBaseline, ScoreFunction
from pipeline.models.decoder import Decoder
from pipeline.scores.reference_divergence import ReferenceDivergence


def add_kl_penalty(method: Method, objective: Objective) -> Method:
    """Add the term −β · KL(speaker ‖ starting speaker) to `method`, with β the objective's `kl_weight`.

    The captions are the objective's multinomial samples, which score-function terms share. Raises UserError where no
    speaker is trained, or where gradients are normalised, since the penalty's gradient is 0 at the start.
    """
    speaker = method.speaker
    if speaker is None or not method.schedule.all_roles >= SPEAKER:
        raise UserError(
            "train.objective.kl_weight: expected a method that trains a speaker, got one that trains none; set "
            "kl_weight to 0"
        )
    if method.normalise_gradients:
        raise UserError(
            "train.objective.kl_weight: expected normalise_gradients false, since the penalty has no gradient at the "
            "start; set kl_weight to 0, or normalise_gradients to false"
        )
    baseline = LeaveOneOut() if objective.samples > 1 else NoBaseline()
    estimator = ScoreFunction(Multinomial(objective.samples), baseline, reduction="words")
    penalty = Term("kl", objective.kl_weight, ReferenceDivergence(copy_frozen(speaker)), estimator, SPEAKER)
    return replace(method, terms=(*method.terms, penalty))


def copy_frozen(speaker: Decoder) -> Decoder:
    """Return a frozen copy of `speaker` in evaluation mode. Weights that training never changes are shared.

    With LoRA, these are all weights of the pretrained model. Afterwards, the trainable weights of `speaker` require
    gradients.
    """
    speaker.requires_grad_(True)
    shared = {id(weight): weight for weight in speaker.parameters() if not weight.requires_grad}
    reference: Decoder = deepcopy(speaker, dict(shared))
    return reference.requires_grad_(False).eval()
