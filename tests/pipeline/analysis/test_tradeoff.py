import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.analysis.results import read_results
from pipeline.analysis.tradeoff import build_curves, compute_mixture


def interpolate(x, y, value):
    weights, reached = compute_mixture(np.array(x), np.array(y), value)
    return float(weights @ np.array(y)), bool(reached)


def fit_isotonic(y):
    """Return the non-increasing least-squares fit: the best of all divisions of y into blocks, each at its mean."""
    best = None
    for cuts in itertools.product((False, True), repeat=len(y) - 1):
        blocks = np.split(np.array(y, dtype=float), [n + 1 for n, cut in enumerate(cuts) if cut])
        fitted = np.concatenate([np.full(len(block), block.mean()) for block in blocks])
        if np.all(np.diff(fitted) <= 1e-12):
            loss = ((fitted - y) ** 2).sum()
            if best is None or loss < best[0] - 1e-12:
                best = loss, fitted
    return best[1]


def test_between_two_settings_the_curve_is_linear():
    assert interpolate([0.8, 1.0], [90.0, 70.0], 0.95) == (pytest.approx(75.0), True)
    weights, _ = compute_mixture(np.array([0.8, 1.0]), np.array([90.0, 70.0]), 0.95)
    assert weights == pytest.approx([0.25, 0.75])


def test_a_setting_has_its_own_number_in_any_order():
    assert interpolate([1.0, 0.8, 0.9], [70.0, 90.0, 85.0], 0.9) == (pytest.approx(85.0), True)
    assert interpolate([0.9, 1.0, 0.8], [85.0, 70.0, 90.0], 0.95) == (pytest.approx(77.5), True)


def test_settings_that_contradict_the_trade_off_are_pooled():
    # The setting .85 has a lower x and a lower y than .9. Pooled, both settings have 80, so the curve has 85 halfway
    # between .8 and .85.
    x, y = [0.8, 0.85, 0.9, 1.0], [90.0, 75.0, 85.0, 60.0]
    assert interpolate(x, y, 0.85) == (pytest.approx(80.0), True)
    assert interpolate(x, y, 0.875) == (pytest.approx(80.0), True)
    assert interpolate(x, y, 0.825) == (pytest.approx(85.0), True)
    assert interpolate(x, y, 0.95) == (pytest.approx(70.0), True)
    weights, _ = compute_mixture(np.array(x), np.array(y), 0.85)
    assert weights == pytest.approx([0, 0.5, 0.5, 0])


def test_beyond_the_measured_settings_the_end_has_all_weight_and_values_above_are_not_reached():
    for value, expected_weights, expected in ((0.79, [1.0, 0.0], True), (1.01, [0.0, 1.0], False)):
        weights, reached = compute_mixture(np.array([0.8, 1.0]), np.array([90.0, 70.0]), value)
        assert reached == expected
        assert weights.tolist() == expected_weights
    for value in (0.8, 1.0):
        assert interpolate([0.8, 1.0], [90.0, 70.0], value)[1]


def test_one_setting_is_a_curve_of_one_value():
    assert interpolate([0.9], [70.0], 0.9) == (70.0, True)
    assert interpolate([0.9], [70.0], 0.9 * (1 + 1e-12)) == (70.0, True)
    assert interpolate([0.9], [70.0], 0.91) == (70.0, False)


def test_settings_at_equal_values_are_averaged():
    assert interpolate([0.9, 0.9, 1.0], [80.0, 70.0, 60.0], 0.9) == (pytest.approx(75.0), True)
    assert interpolate([0.9, 0.9], [70.0, 80.0], 0.9) == (pytest.approx(75.0), True)
    assert interpolate([0.9, 0.9, 1.0], [80.0, 70.0, 60.0], 0.95) == (pytest.approx(67.5), True)


@settings(max_examples=150)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_the_values_at_the_settings_are_those_of_isotonic_regression(y):
    x = np.arange(len(y), dtype=float)
    found = [interpolate(x, np.array(y, dtype=float), value)[0] for value in x]
    assert found == pytest.approx(fit_isotonic(y))


def test_a_batch_of_curves_equals_single_curves():
    generator = np.random.default_rng(0)
    x, y = generator.random((50, 6)), generator.random((50, 6))
    values = generator.random(50)
    weights, reached = compute_mixture(x, y, values)
    assert np.allclose(weights.sum(-1), 1)
    assert (weights >= 0).all()
    for n in range(50):
        one_weights, one_reached = compute_mixture(x[n], y[n], values[n])
        assert weights[n] == pytest.approx(one_weights)
        assert reached[n] == one_reached


def test_settings_other_than_lambda_make_curves_of_their_own(world, make_cell):
    cells = [
        make_cell("psst", 0.9, 70.0, **{"lambda": lam, "rho": rho, "mix": "caption", "seed": seed})
        for lam in (0.1, 0.2) for rho in (0.25, 0.5) for seed in (1, 2)
    ]  # fmt: skip
    world.write([*cells, make_cell("luo", 0.9, 70.0, **{"lambda": 0.5, "feed": "soft", "seed": 1})], [])
    found = build_curves(read_results(world.sweep, []))
    assert [curve.label for curve in found] == ["psst ρ 0.25", "psst ρ 0.5", "luo"]
    assert [point.settings["lambda"] for point in found[0].points] == [0.1, 0.2]
    assert found[0].settings == {"rho": 0.25, "mix": "caption"}
    assert [len(point.runs) for point in found[0].points] == [2, 2]


def test_the_curve_of_guidance_runs_along_gamma_and_others_have_one_for_each_gamma(world, guidance_cells):
    world.write(guidance_cells, [])
    curves = {
        curve.label: [point.settings for point in curve.points] for curve in build_curves(read_results(world.sweep, []))
    }
    assert [settings["gamma"] for settings in curves.pop("guidance")] == [1, 1.5, 2]
    assert {label: [settings["lambda"] for settings in points] for label, points in curves.items()} == {
        "luo γ 1": [0.5, 0.9], "luo γ 1.5": [0.5, 0.9]
    }  # fmt: skip


def test_reached_values_depend_on_the_curves_own_values_alone():
    """Values up to a billionth above the largest are reached. The second curve's values are 1000 times as large."""
    x, y = np.array([[1.0, 2.0], [1000.0, 2000.0]]), np.array([[5.0, 4.0], [5.0, 4.0]])
    for above, expected in ((1e-9, [True, True]), (1e-7, [False, True])):
        assert compute_mixture(x, y, np.array([2.0 + above, 2000.0 + above]))[1].tolist() == expected
