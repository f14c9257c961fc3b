"""Numbers over starts: mean, deviation and intervals by hand, and verdicts with their nominal error rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.errors import UserError
from pipeline.report.result_file import ImageResamples, PrintedTable, ResultFile, locate_result_file
from pipeline.report.starts import (
    BUDGET,
    BUDGET_OVER_STARTS,
    CLAIMS,
    CLAIMS_OVER_STARTS,
    OVER_STARTS,
    RESULTS,
    Spread,
    build_claims_over_starts,
    build_results_over_starts,
    compare_differences_with_recorded,
    compare_with_recorded,
    read_starts,
    summarise_starts,
)

T = 4.302652729911275  # Student's t at .975 with two degrees of freedom


def make_resamples(images: str, *differences: list[float] | None) -> ImageResamples:
    return ImageResamples(images=images, differences=list(differences))


def make_table(*values: str, methods: tuple[str, ...] = ("MLE", "Luo et al.")) -> PrintedTable:
    rows = [[name, "0.9", value, "1.70±0.02"] for name, value in zip(methods, values, strict=True)]
    return PrintedTable(columns=["Method", "λ", "R@1 (hard) judge", "CIDEr"], rows=rows)


def test_intervals_of_three_starts_use_students_t():
    spread = Spread((1.0, 2.0, 3.0))
    assert (spread.mean, spread.deviation) == (2.0, 1.0)
    assert spread.compute_interval() == pytest.approx((2 - T / 3**0.5, 2 + T / 3**0.5))
    assert spread.predict_next_start() == pytest.approx((2 - T * (4 / 3) ** 0.5, 2 + T * (4 / 3) ** 0.5))
    assert Spread((1.0,)).compute_interval() is None


def test_an_interval_covers_images_that_all_starts_share():
    """The variances 1/3 over starts and 11/3 over images add to 4, with 2 · (4 / (1/3))² = 288 degrees of freedom."""
    found = Spread((1.0, 2.0, 3.0), image_variance=11 / 3).compute_interval()
    assert found == pytest.approx((2 - 2 * 1.96823517, 2 + 2 * 1.96823517))
    few = Spread((1.0, 2.0, 3.0), image_variance=0.01)  # never narrower than the interval over starts alone
    assert few.compute_interval() == pytest.approx(Spread((1.0, 2.0, 3.0)).compute_interval())
    same = Spread((2.0, 2.0, 2.0), image_variance=0.25)
    assert same.compute_interval() == pytest.approx((2 - 1.95996398 / 2, 2 + 1.95996398 / 2))


def draw_shared_images(rng, effect: float, starts: int = 3, images: int = 200) -> Spread:
    """Return the spread of a difference over images that all starts share; estimate image_variance from them.

    The standard deviations are 0.5 points between starts, 1.5 for the images, and 0.5 for images in a start.
    """
    by_image = rng.normal(effect, 1.5 * images**0.5, images)
    values = by_image + rng.normal(0, 0.5, (starts, 1)) + rng.normal(0, 0.5 * images**0.5, (starts, images))
    return Spread(tuple(values.mean(1)), image_variance=float(values.mean(0).var(ddof=1) / images))


@pytest.mark.parametrize(("effect", "lowest", "highest"), [(0.0, 0.01, 0.06), (8.0, 0.9, 1.0)])
def test_verdicts_over_shared_images_have_at_most_the_nominal_error_rate(effect, lowest, highest):
    rng = np.random.default_rng(1)
    spreads = [draw_shared_images(rng, effect) for _ in range(1000)]
    assert lowest < np.mean([spread.verdict != "open" for spread in spreads]) < highest
    if not effect:  # without the variance over images, more than a fifth of the verdicts are wrong
        assert np.mean([replace(spread, image_variance=0.0).verdict != "open" for spread in spreads]) > 0.2


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((5.0, 5.5, 6.0), "holds"),
        ((-5.0, -5.5, -6.0), "fails"),
        ((1.0, 5.0, 9.0), "open"),  # all above 0, but the interval is ±9.9
        ((5.0, 5.1), "open"),
    ],
)
def test_a_verdict_needs_three_starts_and_an_interval_on_one_side_of_0(values, verdict):
    assert Spread(values).verdict == verdict


@pytest.mark.parametrize(("effect", "lowest", "highest"), [(0.0, 0.03, 0.07), (6.0, 0.75, 1.0)])
def test_verdicts_have_their_nominal_error_rate(effect, lowest, highest):
    """The standard deviations are 1.5 points between starts, 1 between seeds and 1 for the draw of test images."""
    rng = np.random.default_rng(0)
    starts = rng.normal(effect, 1.5, (4000, 3, 1))
    seeds = starts + rng.normal(0, 1.0, (4000, 3, 3)) + rng.normal(0, 1.0, (4000, 3, 1))
    decided = [Spread(tuple(values)).verdict != "open" for values in seeds.mean(-1)]
    assert lowest < np.mean(decided) < highest


def test_results_over_starts_are_means_with_the_deviation_between_starts():
    starred = make_table("42.0±1.0", "50.0", methods=("MLE", "Luo et al.*"))  # no setting of Luo kept enough CIDEr
    found = build_results_over_starts([make_table("40.0±1.0", "50.0"), starred, make_table("44.0±1.0", "50.0")])
    assert found.rows == [["MLE", "0.9", "42.0±2.0", "1.70±0.02"], ["Luo et al.", "0.9", "50.0", "1.70±0.02"]]


def test_starts_with_other_methods_are_not_averaged():
    with pytest.raises(UserError, match="differ in methods or columns"):
        build_results_over_starts([make_table("40.0", "50.0"), make_table("40.0", "50.0", methods=("MLE", "ReinMax"))])


def make_claims(*differences: str) -> PrintedTable:
    rows = [[f"claim {n}", "CIDEr", "chosen λ", cell, "holds"] for n, cell in enumerate(differences)]
    return PrintedTable(columns=["Claim", "by", "at", "difference", "verdict"], rows=rows)


def test_a_claim_has_the_interval_over_starts_and_a_bound_is_no_difference():
    found = build_claims_over_starts(
        [make_claims("+5.0 [+1.0, +9.0]", "≥+2.0"), make_claims("+5.5", "+2.0"), make_claims("+6.0", "+2.0")]
    )
    assert found.rows == [
        ["claim 0", "CIDEr", "chosen λ", "3", "+5.5 [+4.3, +6.7]", "+5.0, +5.5, +6.0", "holds"],
        ["claim 1", "CIDEr", "chosen λ", "3", "–", "–", "open"],
    ]


def test_claims_over_shared_images_have_the_variance_of_their_mean_over_starts():
    tables = [make_claims("+5.0", "+1.0"), make_claims("+5.5", "+1.0"), make_claims("+6.0", "+1.0")]
    varying = [5.0, 7.0, 3.0]  # the mean over three equal starts has the variance 4
    resamples = [make_resamples("photos", varying, None) for _ in range(3)]
    (first, second) = build_claims_over_starts(tables, resamples).rows
    assert first[-3:] == ["+5.5 [+1.5, +9.5]", "+5.0, +5.5, +6.0", "holds"]
    assert second[-3] == "+1.0 [+1.0, +1.0]"
    opposite, constant = [5.0, 3.0, 7.0], [5.0, 5.0, 5.0]
    unchanged = [resamples[0], make_resamples("photos", opposite, None), make_resamples("photos", constant, None)]
    assert build_claims_over_starts(tables, unchanged).rows[0][-3] == "+5.5 [+4.3, +6.7]"
    partial = [*resamples[:2], make_resamples("photos", None, None)]
    assert build_claims_over_starts(tables, partial).rows[0][-3] == "+5.5 [+1.5, +9.5]"


@pytest.mark.parametrize(
    ("last", "problem"),
    [
        (None, "only some of the recorded starts"),
        (make_resamples("other", [5.0, 7.0, 3.0]), "different prepared data"),
        (make_resamples("photos", [5.0, 7.0]), "different numbers of resamples"),
    ],
)
def test_starts_with_other_resamples_have_no_common_interval(last, problem):
    resamples = [make_resamples("photos", [5.0, 7.0, 3.0])] * 2 + [last]
    with pytest.raises(UserError, match=problem):
        build_claims_over_starts([make_claims("+5.0")] * 3, resamples)


def test_a_run_is_shown_beside_recorded_starts_and_outliers_are_named():
    recorded = [make_table("40.0", "50.0"), make_table("42.0", "50.5"), make_table("44.0", "51.0")]
    found, outliers, compared = compare_with_recorded(make_table("43.0", "70.0"), recorded)
    assert compared == 2
    assert found.columns == ["Method", "λ", "R@1 (hard) judge", "CIDEr"]
    assert [row[2] for row in found.rows] == ["43.0 (42.0±2.0)", "70.0 (50.5±0.5)"]
    assert outliers == ["Luo et al., R@1 (hard) judge: 70.0 is outside 48.0 to 53.0, the 95 % prediction interval"]


def test_differences_from_the_control_are_compared_although_all_levels_lie_lower():
    """Recorded differences are +10.0, +9.0 and +8.0: mean 9, deviation 1, and 9 ± 4.303 · √(4/3) for another start."""
    recorded = [make_table("40.0", "50.0"), make_table("42.0", "51.0"), make_table("44.0", "52.0")]
    own = make_table("21.0", "28.5")
    assert len(compare_with_recorded(own, recorded)[1]) == 2
    found, outliers, compared = compare_differences_with_recorded(own, recorded)
    assert compared == 1
    assert found.columns == ["Method", "R@1 (hard) judge"], "λ and CIDEr are equal in all starts"
    assert found.rows == [["Luo et al. − MLE", "+7.5 (+9.0±1.0)"]]
    assert outliers == []
    found, outliers, _ = compare_differences_with_recorded(make_table("21.0", "20.0"), recorded)
    assert found.rows == [["Luo et al. − MLE", "−1.0 (+9.0±1.0)"]]
    assert outliers == [
        "Luo et al. − MLE, R@1 (hard) judge: −1.0 is outside +4.0 to +14.0, the 95 % prediction interval"
    ]


def test_an_empty_table_has_no_differences():
    recorded = [make_table("40.0", "50.0"), make_table("42.0", "51.0")]
    empty = PrintedTable(columns=recorded[0].columns, rows=[])
    assert compare_differences_with_recorded(empty, recorded)[0].rows == []
    assert compare_differences_with_recorded(empty, [empty, empty])[0].rows == []


def test_recorded_starts_are_read_in_order_and_summarised(tmp_path):
    (tmp_path / "results").mkdir()
    budget = PrintedTable(columns=["Method", "steps", "captions drawn"], rows=[["Luo et al.", "1,233", "157,824"]])
    for start in (10, 2, 3):
        file = ResultFile(
            command=f"make repro START={start}",
            commit="abc",
            date=f"2026-11-{start:02}",
            machine="m",
            seeds=[start],
            tables={RESULTS: make_table(f"{start}.0", "50.0"), CLAIMS: make_claims("+5.0"), BUDGET: budget},
        )
        locate_result_file(tmp_path, f"scenes@start{start}").write_text(file.text())
    locate_result_file(tmp_path, "scenes@xeon").write_text(file.text())  # a run on another machine is no start
    starts = read_starts(tmp_path, "scenes")
    assert list(starts) == [2, 3, 10]
    summary = summarise_starts(starts)
    assert (summary.seeds, summary.commit, summary.date) == ([2, 3, 10], "abc", "2026-11-10")
    assert summary.table(OVER_STARTS).rows[0][2] == "5.0±4.4"
    assert summary.table(CLAIMS_OVER_STARTS).rows[0][-1] == "holds"
    assert summary.table(BUDGET_OVER_STARTS).rows == budget.rows
    starts[2] = starts[2].model_copy(update={"tables": {RESULTS: make_table("2.0", "50.0")}})
    assert list(summarise_starts(starts).tables) == [OVER_STARTS]  # one start has no other tables


def test_large_numbers_over_starts_keep_their_commas():
    found = build_results_over_starts([make_table("1,200", "5"), make_table("1,400", "5"), make_table("1,600", "5")])
    assert found.rows[0][2] == "1,400±200"


def test_a_number_that_a_start_lacks_has_no_mean():
    found = build_results_over_starts([make_table("40.0", "50.0"), make_table("–", "51.0"), make_table("44.0", "52.0")])
    assert [row[2] for row in found.rows] == ["–", "51.0±1.0"]


def test_tables_of_other_data_are_summarised_by_their_own_names_and_decimals():
    """Drawn dialogs have no table of caption results: tables of equal rows and columns in all starts are summarised.

    The table `CLAIMS` is the exception.
    """

    def make_start(mrr: str, difference: str, alpha: str) -> ResultFile:
        tables = {
            "Generators": PrintedTable(columns=["Method", "α", "MRR"], rows=[["G-MLE", alpha, mrr]]),
            "Claims of the paper": PrintedTable(
                columns=["Claim", "difference in MRR", "seeds", "verdict"], rows=[["D helps", difference, "1", "open"]]
            ),
            CLAIMS: PrintedTable(columns=["Claim"], rows=[]),
            "Kinds": PrintedTable(columns=["Model", f"only here {mrr}"], rows=[["G-MLE", mrr]]),
        }
        return ResultFile(command="c", commit="a", date="2026", machine="m", seeds=[1], tables=tables)

    starts = [
        make_start("0.4000", "+0.0100 [−0.1, +0.2]", "2"),
        make_start("0.4100", "+0.0200 [0, +0.2]", "8"),
        make_start("0.4200", "+0.0300 [0, +0.2]", "2"),
    ]
    tables = summarise_starts(dict(enumerate(starts))).tables
    assert tables["Generators"].rows == [["G-MLE", "4±3", "0.4100±0.0100"]]
    half_width = T * 0.01 / 3**0.5
    assert tables["Claims of the paper"].columns == ["Claim", "starts", "difference in MRR", "by start", "verdict"]
    interval = f"[−{half_width - 0.02:.4f}, +{half_width + 0.02:.4f}]"
    assert tables["Claims of the paper"].rows == [
        ["D helps", "3", f"+0.0200 {interval}", "+0.0100, +0.0200, +0.0300", "open"]
    ]
    assert list(tables) == ["Generators", "Claims of the paper"]


def test_means_have_the_most_decimals_of_the_starts_in_any_order():
    """A median rank is printed without decimals where it is a whole number."""
    starts = [make_table(median, "5") for median in ("3", "3.5", "4")]
    for ordered in (starts, starts[::-1]):
        assert build_results_over_starts(ordered).rows[0][2] == "3.5±0.5"
    differences = [make_claims("+1"), make_claims("+1.5"), make_claims("+2.4")]
    assert build_claims_over_starts(differences).rows[0][5] == "+1.0, +1.5, +2.4"
    assert build_claims_over_starts(differences[::-1]).rows[0][5] == "+2.4, +1.5, +1.0"


def test_a_number_with_an_exponent_is_read_whole():
    rows = build_results_over_starts([make_table("1e-05", "5"), make_table("0.00103", "5")]).rows
    assert rows[0][2] == "0.00052±0.00072"


def test_rows_of_one_name_keep_their_own_numbers_and_a_bound_has_no_mean():
    twice = ("MLE", "MLE")
    found = build_results_over_starts(
        [make_table("1.0", "5.0", methods=twice), make_table("2.0", "7.0", methods=twice)]
    )
    assert [row[2] for row in found.rows] == ["1.5±0.7", "6.0±1.4"]
    assert build_results_over_starts([make_table("≥2.0", "5"), make_table("3.0", "5")]).rows[0][2] == "–"
