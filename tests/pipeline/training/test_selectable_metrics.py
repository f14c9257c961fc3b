"""Settings of a training that contradict each other."""

import pytest

from pipeline.training.optimisation import Optimisation
from pipeline.training.selectable_metrics import build_select_validator


def check(settings: Optimisation) -> Optimisation:
    return build_select_validator("cider", "recall@10").func(settings)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"validate_every": 0},
        {"select": "recall@10"},
        {"select": "cider", "validate_every": 0, "validations_per_epoch": 2},
        {"select": "cider", "patience": 3},
        {"schedule": "step", "decay": 0.5, "decay_every": 2, "start_epoch": 4},
    ],
)
def test_settings_that_fit_each_other_are_kept(options):
    settings = Optimisation(epochs=1, batch=2, **options)
    assert check(settings) is settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "step", "decay": 0.5}, "schedule step needs decay and decay_every"),
        ({"schedule": "step", "decay_every": 2}, "schedule step needs decay and decay_every"),
        ({"start_epoch": 4}, "start_epoch 4 goes with schedule step, not with constant"),
        ({"select": "cider", "validate_every": 0}, "select cider needs validations"),
        ({"patience": 3}, "patience needs a validation metric: set"),
        ({"select": "rsum"}, r"select = rsum is not allowed: last \| cider \| recall@10"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        check(Optimisation(epochs=1, batch=2, **options))
