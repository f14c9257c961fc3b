"""The method of the report's headline, and the interval of its difference from the control."""

from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.report.headline import choose_headline_pair, compose_headline_sentence


def find_headline_method(world, cells, control):
    world.write(cells, [control])
    results = read_results(world.sweep, [world.root / "evaluation" / control["method"]])
    control_choice, best = choose_headline_pair(results, choose_all(results, ReportSettings()), "mle")
    assert control_choice.method == "mle"
    return best.method


def test_methods_that_keep_the_controls_cider_come_first(world, make_cell, control):
    natural = make_cell("st_multinomial", 0.95, 60.0, **{"lambda": 0.1, "seed": 1})  # the control's CIDEr is .96
    broken = make_cell("luo", 0.5, 90.0, **{"lambda": 0.9, "seed": 1})
    worse = make_cell("psst_multinomial", 0.6, 70.0, **{"lambda": 0.9, "seed": 1})
    assert find_headline_method(world, [broken, natural, worse], control) == "st_multinomial"


def test_the_highest_recall_counts_where_no_method_keeps_the_controls_cider(world, make_cell, control):
    broken = make_cell("luo", 0.5, 90.0, **{"lambda": 0.9, "seed": 1})
    worse = make_cell("psst_multinomial", 0.6, 70.0, **{"lambda": 0.9, "seed": 1})
    worse["test"] = make_cell("psst_multinomial", 0.6, 95.0)["test"]  # recall on the test split does not count
    assert find_headline_method(world, [broken, worse], control) == "luo"


@pytest.mark.parametrize(
    ("shift", "interval"), [(0, "−3.8 to +3.8, so it may be chance); "), (20, "+16.2 to +23.8); ")]
)
def test_a_difference_whose_interval_includes_0_may_be_chance(world, shift, interval):
    differences = np.linspace(-4, 4, 81) + shift  # the quantiles .025 and .975 are the third and the third last
    resamples = SimpleNamespace(mean=lambda points, *keys: np.stack([differences, np.zeros(81)], 1))
    results = read_results(world.sweep, world.evaluations)
    sentence = compose_headline_sentence(results, choose_all(results, ReportSettings()), "mle", resamples)
    assert f" points, 95 % interval {interval}CIDEr" in sentence
