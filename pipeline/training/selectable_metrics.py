"""Validator of `Optimisation`: the metric that selects the weights must be one that the training measures."""

from __future__ import annotations

from pydantic import AfterValidator

from pipeline.training.optimisation import Optimisation


def build_select_validator(*metrics: str) -> AfterValidator:
    """Build a validator of Optimisation: `select` must be `last` or one of `metrics`; related settings must fit."""

    def check(optimisation: Optimisation) -> Optimisation:
        select = optimisation.select
        if optimisation.schedule == "step" and (optimisation.decay is None or optimisation.decay_every is None):
            raise ValueError("schedule step needs decay and decay_every (epochs): set both")
        if optimisation.schedule != "step" and optimisation.start_epoch:
            raise ValueError(
                f"start_epoch {optimisation.start_epoch} goes with schedule step, not with {optimisation.schedule}; "
                "set it to 0"
            )
        if select != "last" and optimisation.validate_every == 0 and optimisation.validations_per_epoch == 1:
            raise ValueError(f"select {select} needs validations: set validate_every to 1 or more epochs")
        if optimisation.patience is not None and select == "last":
            raise ValueError("patience needs a validation metric: set select to a metric, or patience to null")
        if select not in ("last", *metrics):
            raise ValueError(f"select = {select} is not allowed: {' | '.join(('last', *metrics))}")
        return optimisation

    return AfterValidator(check)
