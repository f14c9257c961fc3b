"""The rows of a measurement of estimators."""

import json

import pytest

from pipeline.gradients.estimator_candidates import ESTIMATORS
from pipeline.gradients.observe import MeasurementEffort, measure_candidates

pytestmark = pytest.mark.slow

NAMES = ("REINFORCE, greedy", "REINFORCE, greedy, centred", "ST-Gumbel")


@pytest.fixture(scope="module")
def observation():
    candidates = [one for one in ESTIMATORS if one.name in NAMES and one.settings.get("temperature", 1.0) == 1.0]
    messages = []
    result = measure_candidates(
        candidates, MeasurementEffort(worlds=2, epochs=5, samples=(1, 4), rounds=12, repeats=1), messages.append
    )
    assert messages[0] == "world 1 of 2, hinge: REINFORCE, greedy"
    return json.loads(json.dumps(result))


def find_row(observation, name, samples, score="hinge"):
    (one,) = (r for r in observation["rows"] if (r["name"], r["samples"], r["score"]) == (name, samples, score))
    return one


def test_each_estimator_number_of_samples_and_score_has_a_row(observation):
    keys = {(r["name"], r["samples"], r["score"]) for r in observation["rows"]}
    assert keys == {
        ("REINFORCE, greedy", 1, "hinge"), ("REINFORCE, greedy", 4, "hinge"),
        ("REINFORCE, greedy", 1, "hinge among images"), ("REINFORCE, greedy", 4, "hinge among images"),
        ("REINFORCE, greedy, centred", 4, "hinge"),
        ("ST-Gumbel", 1, "hinge"), ("ST-Gumbel", 4, "hinge"),
    }  # fmt: skip
    assert all(len(one["worlds"]) == 2 for one in observation["rows"])
    assert all(("seconds" in one) == (one["score"] == "hinge") for one in observation["rows"])


def test_enumerated_estimators_have_no_error_and_sampled_ones_have_one(observation):
    exact, sampled = find_row(observation, "REINFORCE, greedy", 4), find_row(observation, "ST-Gumbel", 4)
    assert exact["exact"] and all(world["bias_error"] == 0 for world in exact["worlds"])  # noqa: PT018
    assert not sampled["exact"] and all(world["bias_error"] > 0 for world in sampled["worlds"])  # noqa: PT018


@pytest.mark.parametrize("name", ["REINFORCE, greedy", "ST-Gumbel"])
def test_independent_samples_share_the_variance(observation, name):
    one, four = find_row(observation, name, 1), find_row(observation, name, 4)
    for first, second in zip(one["worlds"], four["worlds"], strict=True):
        assert first["variance"] == pytest.approx(4 * second["variance"])
        assert first["bias"] == second["bias"]
