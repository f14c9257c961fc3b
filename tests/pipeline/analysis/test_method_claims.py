"""Claims about small results, at the chosen λ, at equal CIDEr and at equal recall."""

from pathlib import Path

import pytest

from pipeline.analysis.bootstrap import Resamples
from pipeline.analysis.comparison import Comparison, ComparisonSlice, CurveReading, Estimate, compare_methods
from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.method_claims import ClaimResult, MethodClaim, _check_level, check_claim
from pipeline.analysis.results import Point, Results, Run, add_frozen_speakers, read_results
from pipeline.analysis.selection import Choice, ReportSettings, SelectionBasis, choose_all
from pipeline.analysis.tradeoff import Curve

SETTINGS = ReportSettings()


def make_claim(more, than, **fields):
    return MethodClaim(
        **{"statement": "so", "data": "toy", "more": more, "than": than, "judge": "own", "at": "chosen λ"} | fields
    )


def check_claims(world, *claims):
    results = add_frozen_speakers(read_results(world.sweep, world.evaluations), ("mle", "luo"))
    comparison, choices = compare_methods(results, SETTINGS), choose_all(results, SETTINGS)
    return comparison, [check_claim(each, comparison, choices) for each in claims]


def test_a_verdict_needs_an_interval_and_two_seeds_on_one_side():
    def find_verdict(interval, seeds, bound=""):
        return ClaimResult(make_claim("a", "b"), "", 1.0, interval, dict(enumerate(seeds)), bound).verdict

    assert find_verdict((0.1, 3.0), (2.0, 0.5)) == "holds"
    assert find_verdict((0.1, 3.0), (2.0,)) == "open"  # one seed
    assert find_verdict((0.1, 3.0), (2.0, -0.1)) == "open"  # a seed on the other side
    assert find_verdict((-0.1, 3.0), (2.0, 0.5)) == "open"
    assert find_verdict((-3.0, -0.1), (-2.0, -0.5)) == "fails"
    assert find_verdict((0.1, 3.0), (2.0, 0.5), "≥") == "holds"
    assert find_verdict((0.1, 3.0), (2.0, 0.5), "≤") == "open"
    assert find_verdict((-3.0, -0.1), (-2.0, -0.5), "≥") == "open"
    assert find_verdict(None, (1.0, 2.0)) == "open"


def test_at_the_chosen_setting_seeds_are_paired_and_a_single_run_is_paired_with_all(full_world):
    comparison, (first, reverse, frozen) = check_claims(
        full_world, make_claim("luo", "mle"), make_claim("mle", "luo"), make_claim("luo", "frozen_luo", judge="judge")
    )
    results = comparison.results
    points = {choice.method: choice.point for choice in choose_all(results, SETTINGS)}
    keys = ("test", "judges", "own", "text_to_image", "R@10")
    mle = points["mle"].mean(*keys)
    assert first.value == pytest.approx(points["luo"].mean(*keys) - mle)
    assert len(first.by_seed) == len(points["luo"].runs) > 1
    for run in points["luo"].runs:
        assert first.by_seed[run.settings["seed"]] == pytest.approx(run.value(*keys) - mle)
    assert first.interval[0] <= first.value <= first.interval[1]
    assert reverse.value == pytest.approx(-first.value)
    assert reverse.interval == pytest.approx((-first.interval[1], -first.interval[0]))
    assert first.interval[0] < 0 < first.interval[1]
    assert first.verdict == reverse.verdict == "open"
    assert (frozen.value, frozen.interval, frozen.verdict) == (0.0, (0.0, 0.0), "open")  # both have the same captions
    assert frozen.by_seed == {1: 0.0, 2: 0.0}


def test_a_claim_at_equal_cider_is_about_the_difference_of_the_curves_at_the_level(full_world):
    comparison, (claim,) = check_claims(full_world, make_claim("psst_multinomial", "luo", at="equal CIDEr"))
    slice_ = comparison.at_cider[0]
    assert claim.at == f"CIDEr {slice_.level:.3f}"
    keys = ("judges", "own", "text_to_image", "R@10")
    values = {r.curve.label: r.estimates[keys].value for r in slice_.readings if keys in r.estimates}
    (chosen,) = [each.point for each in choose_all(comparison.results, SETTINGS) if each.method == "psst_multinomial"]
    psst = values[f"psst_multinomial ρ {chosen.settings['rho']:g}"]
    assert claim.value == pytest.approx(psst - values["luo"])


def test_a_claim_about_a_missing_number_is_open_with_the_reason(full_world):
    missing = [
        make_claim("luo", "nobody"),
        make_claim("luo", "nobody", at="equal CIDEr"),
        make_claim("luo", "mle", judge="owl"),
    ]
    _, (one, two, three) = check_claims(full_world, *missing)
    assert (one.reason, two.reason) == ("nobody was not measured", f"nobody has no result at {two.at}")
    assert three.reason == "no R@10 by owl"
    assert {each.verdict for each in (one, two, three)} == {"open"}


def test_a_seed_whose_curve_misses_the_level_is_paired_with_no_other_seed():
    """Three seeds of method b and one seed of method a reach the level, so one difference is known."""
    keys = make_recall_keys("own")

    def make_seed_reading(method: str, by_seed: dict[object, float]) -> CurveReading:
        point = Point(tuple(Run(method, {"lambda": 0.5, "seed": seed}, "", {}, {}, Path()) for seed in (1, 2, 3)))
        estimates = {keys: Estimate(0.6, by_seed=by_seed)}
        return CurveReading(Curve("", method, {}, (point,)), (0.5, 1.0), point, estimates)

    one, other = make_seed_reading("a", {1: 0.7}), make_seed_reading("b", {1: 0.6, 2: 0.5, 3: 0.5})
    assert _check_level(make_claim("a", "b"), "", one, other, keys).by_seed == {1: pytest.approx(0.1)}
    assert _check_level(make_claim("b", "a"), "", other, one, keys).by_seed == {1: pytest.approx(-0.1)}


def test_a_claim_without_a_judge_compares_cider(full_world):
    comparison, (claim, unmeasured) = check_claims(
        full_world, make_claim("mle", "luo", judge=None), make_claim("mle", "luo", judge=None, at="equal recall")
    )
    choices = choose_all(comparison.results, SETTINGS)
    points = {choice.method: choice.point for choice in choices}
    cider = {name: points[name].mean("test", "language", "CIDEr") for name in ("mle", "luo")}
    assert claim.value == pytest.approx(cider["mle"] - cider["luo"])
    slice_ = comparison.at_score[0]
    assert unmeasured.at == f"R@10 {slice_.level:g}% by own"
    assert unmeasured.reason.endswith(f"has no result at {unmeasured.at}")
    ciders = {r.curve.label: r.estimates["language", "CIDEr"].value for r in slice_.readings if r.estimates}
    equal = check_claim(make_claim("st_multinomial", "reinforce", judge=None, at="equal recall"), comparison, choices)
    assert equal.value == pytest.approx(ciders["st_multinomial"] - ciders["reinforce"])


def make_reading(point: Point, value: float, above: bool = False) -> CurveReading:
    """Return a reading of a curve of one setting, with R@10 of `value` and R@1 of `value` / 2."""
    estimates = {make_recall_keys("own"): Estimate(value), make_recall_keys("own", "R@1"): Estimate(value / 2)}
    return CurveReading(Curve("", point.method, {}, (point,)), (0.5, 1.0), point, estimates, is_lower_bound=above)


def test_a_claim_at_equal_cider_is_about_the_chosen_curves_at_the_first_level_by_its_score():
    """Method a has three curves, and the second is chosen on validation."""
    numbers = {("test", *make_recall_keys("own")): 1.0}
    points = [
        Point((Run(method, {"seed": 1, "rho": rho}, "", numbers, {}, Path()),))
        for method, rho in (("a", 0.1), ("a", 0.2), ("a", 0.3), ("b", 0.1))
    ]
    levels = [
        ComparisonSlice("CIDEr", level, tuple(make_reading(p, v) for p, v in zip(points, values, strict=True)))
        for level, values in ((0.9, (50.0, 60.0, 70.0, 40.0)), (0.8, (51.0, 62.0, 71.0, 40.0)))
    ]
    comparison = Comparison(Results(tuple(points)), tuple(levels), (), (), None, Resamples(0))
    choices = [Choice(points[n].method, points[n], SelectionBasis.MET) for n in (1, 3)]
    found = [
        check_claim(make_claim("a", "b", at="equal CIDEr", score=score), comparison, choices) for score in (None, "R@1")
    ]
    assert [(each.at, each.value) for each in found] == [("CIDEr 0.900", 20.0), ("CIDEr 0.900", 10.0)]


@pytest.mark.parametrize(
    ("above", "than_above", "value", "bound"),
    [(True, False, 20.0, "≥"), (False, True, None, ""), (True, True, None, "")],
)
def test_a_lower_bound_of_one_method_bounds_the_difference(above, than_above, value, bound):
    points = [Point((Run(method, {"seed": 1}, "", {}, {}, Path()),)) for method in "ab"]
    readings = make_reading(points[0], 60.0, above), make_reading(points[1], 40.0, than_above)
    level = ComparisonSlice("CIDEr", 0.9, readings)
    comparison = Comparison(Results(tuple(points)), (level,), (), (), None, Resamples(0))
    found = check_claim(make_claim("a", "b", at="equal CIDEr"), comparison, [])
    assert (found.value, found.bound, found.verdict) == (value, bound, "open")
    assert found.reason == ("" if value else "a lower bound does not show which number is higher")


@pytest.mark.parametrize(("judge", "at"), [("own", "equal recall"), (None, "equal CIDEr")])
def test_a_level_compares_the_other_quantity_only(judge, at):
    """The claim is about the quantity that its level holds equal."""
    points = [Point((Run(method, {"seed": 1}, "", {}, {}, Path()),)) for method in "ab"]
    levels = [ComparisonSlice("", 0.9, tuple(CurveReading(Curve("", p.method, {}, (p,)), None, p) for p in points))]
    comparison = Comparison(Results(tuple(points)), tuple(levels), tuple(levels), (), None, Resamples(0))
    found = check_claim(make_claim("a", "b", judge=judge, at=at), comparison, [])
    assert (found.verdict, found.at) == ("open", at)
    assert found.reason.startswith("recalls are compared at equal CIDEr, and CIDEr at equal recall")


def test_a_score_that_a_judge_lacks_is_named():
    """The judge measured R@10 only."""
    points = [
        Point((Run(method, {"seed": 1}, "", {("test", *make_recall_keys("own")): 50.0}, {}, Path()),))
        for method in "ab"
    ]
    choices = [Choice(point.method, point, SelectionBasis.MET) for point in points]
    comparison = Comparison(Results(tuple(points)), (), (), (), None, Resamples(0))
    reasons = [
        check_claim(make_claim("a", "b", score=score), comparison, choices).reason
        for score in ("R@1 (hard)", "R@5", "R@10")
    ]
    assert reasons == ["no R@1 (hard) by own", "no R@5 by own", ""]


def test_a_claim_about_a_template_uses_the_template_of_its_method():
    """Templates were evaluated with both methods; their recalls are 10 and 90."""

    def make_evaluated_point(method: str, recall: float) -> Point:
        own = make_recall_keys("own")
        numbers = {("test", *own): 50.0, ("test", "baselines", "template", *own): recall}
        return Point((Run(method, {"seed": 1}, "", numbers, {}, Path()),))

    points = make_evaluated_point("a", 10.0), make_evaluated_point("b", 90.0)
    choices = [Choice(point.method, point, SelectionBasis.MET) for point in points]
    comparison = Comparison(Results(points), (), (), (), None, Resamples(0))
    claims = make_claim("a", "template"), make_claim("template", "a"), make_claim("b", "template")
    assert [check_claim(each, comparison, choices).value for each in claims] == [40.0, -40.0, -40.0]
