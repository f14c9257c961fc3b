import pytest

from pipeline.analysis.results import read_results
from pipeline.analysis.selection import (
    ReportSettings,
    SelectionBasis,
    choose_all,
    compute_naturalness_floor,
    describe_grid_end,
    describe_rule,
)

SETTINGS = ReportSettings(min_cider_share=0.95)


def choose_settings(world, cells, evaluations=()):
    world.write(cells, list(evaluations))
    folders = [world.root / "evaluation" / entry["method"] for entry in evaluations]
    results = read_results(world.sweep, folders)
    return results, {choice.method: choice for choice in choose_all(results, SETTINGS)}


def test_the_highest_recall_above_the_cider_floor_is_selected(world, make_cell, control):
    # The control has CIDEr .96, so the floor is .912. λ .02 has the highest recall, but its CIDEr is below the floor.
    cells = [make_cell("luo", c, r, **{"lambda": lam, "seed": 1})
             for lam, c, r in ((0.001, 0.95, 72.0), (0.005, 0.92, 84.0), (0.02, 0.80, 93.0))]  # fmt: skip
    results, choices = choose_settings(world, cells, [control])
    assert compute_naturalness_floor(results, SETTINGS) == pytest.approx(0.912)
    assert choices["luo"].point.settings["lambda"] == 0.005
    assert choices["luo"].basis is SelectionBasis.MET
    assert choices["luo"].candidates == 3
    assert "0.912" in describe_rule(results, SETTINGS)


def test_the_test_split_does_not_influence_the_selection(world, make_cell, control):
    cells = [make_cell("luo", 0.95, r, **{"lambda": r, "seed": 1}) for r in (70.0, 80.0)]
    cells[0]["test"]["judges"]["own"]["text_to_image"]["R@10"] = 99.0
    _, choices = choose_settings(world, cells, [control])
    assert choices["luo"].point.settings["lambda"] == 80.0


def test_the_most_natural_setting_is_taken_and_marked_if_none_reaches_the_floor(world, make_cell, control):
    cells = [make_cell("luo", c, r, **{"lambda": c, "seed": 1}) for c, r in ((0.7, 90.0), (0.8, 80.0))]
    _, choices = choose_settings(world, cells, [control])
    assert choices["luo"].point.settings["lambda"] == 0.8
    assert choices["luo"].basis is SelectionBasis.BELOW


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(("ciders", "recalls"), [((0.93, 0.95), (80.0, 80.0)), ((0.7, 0.7), (80.0, 90.0))])
def test_the_other_metric_decides_between_equals(world, make_cell, control, ciders, recalls, order):
    """Two natural settings have equal recall, or two unnatural settings have equal CIDEr."""
    settings = list(zip((0.1, 0.2)[::order], ciders, recalls, strict=True))
    _, choices = choose_settings(
        world, [make_cell("luo", c, r, **{"lambda": lam, "seed": 1}) for lam, c, r in settings], [control]
    )
    assert choices["luo"].point.settings["lambda"] == settings[1][0]


def test_exactly_the_floor_is_enough(world, make_cell):
    cells = [make_cell("luo", c, r, **{"lambda": c, "seed": 1}) for c, r in ((0.95, 90.0), (0.96, 80.0))]
    _, choices = choose_settings(world, cells, [make_cell("mle", 1.0, 60.0, seed=1)])
    assert choices["luo"].point.settings["lambda"] == 0.95


def test_a_control_with_several_settings_counts_with_its_best(world, make_cell):
    control = [make_cell("mle", cider, 60.0, **{"lambda": cider, "seed": 1}) for cider in (0.8, 1.0, 0.9)]
    results, _ = choose_settings(world, control)
    assert compute_naturalness_floor(results, SETTINGS) == pytest.approx(0.95)


def test_recall_alone_decides_without_a_control_and_the_rule_states_it(world, make_cell):
    cells = [make_cell("luo", c, r, **{"lambda": c, "seed": 1}) for c, r in ((0.3, 90.0), (0.9, 80.0))]
    results, choices = choose_settings(world, cells)
    assert choices["luo"].point.settings["lambda"] == 0.3
    assert choices["luo"].basis is SelectionBasis.NO_CONTROL
    assert "no validation CIDEr of the control mle" in describe_rule(results, SETTINGS)


def test_only_a_single_setting_is_selected_without_validation_numbers(world, make_cell, control):
    cells = [make_cell("luo", None, 70.0, **{"lambda": lam, "seed": 1}) for lam in (0.1, 0.2)]
    cells += [make_cell("st", 0.95, None, **{"lambda": 0.1, "seed": 1})]
    _, choices = choose_settings(world, cells, [control])
    assert choices["luo"].point is None
    assert choices["st"].point.settings["lambda"] == 0.1
    assert choices["luo"].basis is choices["st"].basis is SelectionBasis.UNMEASURED


def test_seeds_are_averaged_before_choosing(world, make_cell, control):
    # One seed of λ .1 has the highest recall, but λ .2 has the higher mean.
    values = {(0.1, 1): 90.0, (0.1, 2): 60.0, (0.2, 1): 80.0, (0.2, 2): 82.0}
    cells = [make_cell("luo", 0.95, r, **{"lambda": lam, "seed": seed}) for (lam, seed), r in values.items()]
    _, choices = choose_settings(world, cells, [control])
    assert choices["luo"].point.settings["lambda"] == 0.2
    assert len(choices["luo"].point.runs) == 2


@pytest.mark.parametrize(("best", "end"), [(0.1, "lowest of 3"), (0.2, ""), (0.3, "highest of 3")])
def test_a_chosen_lambda_at_an_end_of_its_grid(world, make_cell, control, best, end):
    cells = [make_cell("luo", 0.95, 90.0 if lam == best else 70.0, **{"lambda": lam, "seed": seed})
             for lam in (0.1, 0.2, 0.3) for seed in (1, 2)]  # fmt: skip
    results, choices = choose_settings(world, cells, [control])
    assert describe_grid_end(results, choices["luo"]) == end
    assert describe_grid_end(results, choices["mle"]) == "", "a single setting is at no end of a grid"


def test_the_end_of_a_grid_is_among_the_settings_of_the_selected_rho(world, make_cell, control):
    # The highest λ is .2 at ρ .5, and .3 at ρ .25.
    recalls = {(0.1, 0.25): 70.0, (0.2, 0.25): 70.0, (0.3, 0.25): 70.0, (0.1, 0.5): 70.0, (0.2, 0.5): 90.0}
    cells = [make_cell("psst", 0.95, r, **{"lambda": lam, "rho": rho, "seed": 1}) for (lam, rho), r in recalls.items()]
    results, choices = choose_settings(world, cells, [control])
    assert choices["psst"].point.settings["rho"] == 0.5
    assert describe_grid_end(results, choices["psst"]) == "highest of 2"


def test_recall_in_the_hard_gallery_decides_where_it_is_measured_unless_another_score_is_set(world, make_cell, control):
    cells = [make_cell("luo", 0.95, r, **{"lambda": r, "seed": 1}) for r in (70.0, 80.0)]
    for entry, hard_recall in ((cells[0], 30.0), (cells[1], 20.0), (control, 10.0)):
        for part in ("val", "test"):
            entry[part]["judges"]["own"]["galleries"] = {"neighbourhood": {"R@1": hard_recall}}
    results, choices = choose_settings(world, cells, [control])
    assert results.score == "R@1 (hard)"
    assert results.scores == ["R@1 (hard)", "R@10"]
    assert choices["luo"].point.settings["lambda"] == 70.0
    assert "highest R@1 (hard) (own listener)" in describe_rule(results, SETTINGS)
    other = read_results(world.sweep, [world.root / "evaluation" / "mle"], score="R@10")
    points = {choice.method: choice.point for choice in choose_all(other, SETTINGS)}
    assert (other.scores, points["luo"].settings["lambda"]) == (["R@10"], 80.0)


def test_a_point_without_the_curves_setting_is_no_end_of_its_grid(world, make_cell, control):
    """The grid of rerank is null, 5 and 20 samples."""
    cells = [make_cell("luo", 0.95, 60.0 + n, **{"lambda": 0.5, "rerank": n or None, "seed": 1}) for n in (0, 5, 20)]
    results, choices = choose_settings(world, cells, [control])
    assert (results.curve_setting("luo"), choices["luo"].candidates) == ("rerank", 3)
    assert describe_grid_end(results, choices["luo"]) == "highest of 2"
