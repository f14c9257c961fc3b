"""Rankers of candidate answers: seeds merged by name, and paired differences against values computed by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.results import Point, Results, Run
from pipeline.analysis.selection import Choice, SelectionBasis, choose_best
from pipeline.dialog.report.dialog_ranking import (
    MRR,
    collect_discriminators,
    collect_generators,
    compute_ranker_difference,
    compute_reciprocal_ranks,
    get_adversary_name,
    get_known_difference,
)

DIALOGS, ROUNDS = 40, 3
RANKS = {"rank": 4, "rank_own": 8, "rank_d_mle": 2, "rank_d_mle_2": 4, "rank_d_np": 2, "rank_chance": 50}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Return the results of two methods in one captions file of a grid.

    The ranks of g_mle are those of RANKS, and the ranks of gan2 are twice as large. In the first round, each rank is 1.
    """
    parts = []
    for method, factor in (("g_mle", 1), ("gan2", 2)):
        columns = {
            "split": ["test"] * DIALOGS * ROUNDS,
            "method": [method] * DIALOGS * ROUNDS,
            "cell": ["seed=1"] * DIALOGS * ROUNDS,
            "image": np.repeat(np.arange(DIALOGS), ROUNDS),
            "round": np.tile(np.arange(1, ROUNDS + 1), DIALOGS),
        }
        first = columns["round"] == 1
        columns["relevance_answer"] = np.where(first, 1.0, 0.2 * factor)  # only relevance 1 counts as a true answer
        if method == "gan2":
            columns["relevance_answer"][columns["round"] == 2] = 1.0
        table = pa.table(columns | {name: np.where(first, 1, factor * rank) for name, rank in RANKS.items()})
        parts.append(table.take(np.random.default_rng(0).permutation(len(table))))  # rows may have any order
    pq.write_table(pa.concat_tables(parts), tmp_path / "captions.parquet")
    shared_numbers = {("test", "ranking", "MRR"): 0.5, ("test", "judges", "own", "ranking", "MRR"): 0.4}
    judge_numbers = {("test", "judges", name, "ranking", "MRR"): 0.6 for name in ("d_mle", "d_np")}
    ranker_numbers = {("test", "rankers", name, "ranking", "MRR"): 0.8 for name in ("d_mle_2", "chance")}
    numbers = {"g_mle": shared_numbers | judge_numbers | ranker_numbers, "gan2": shared_numbers | judge_numbers}

    def make_point(method: str) -> Point:
        file = tmp_path / "captions.parquet"
        return Point((Run(method, {"seed": 1}, "signature", numbers[method], {}, file, cell="seed=1"),))

    return Results((make_point("g_mle"), make_point("gan2")))


@pytest.fixture
def rankers(results: Results):
    choices = [Choice(point.method, point, SelectionBasis.MET, 1) for point in results.points]
    return collect_generators(choices) | collect_discriminators(results, choices)


def test_all_rankers_are_listed_and_seeds_are_merged(rankers):
    assert list(rankers) == ["g_mle", "gan2", "d_mle", "d_np", "chance", get_adversary_name("gan2")]
    assert rankers["d_mle"].columns == ("rank_d_mle", "rank_d_mle_2")
    assert rankers["d_mle"].point.mean("test", "ranking", "MRR") == pytest.approx(0.7)  # the mean of .6 and .8
    assert rankers[get_adversary_name("gan2")].point.mean("test", "ranking", "MRR") == 0.4


def test_ranks_of_a_ranker_are_read_from_the_rows_of_its_method(rankers):
    def compute_means(name: str) -> list[float]:
        return [found.mean() for found in rankers[name].compute_reciprocal_ranks()]

    assert compute_means("g_mle") == pytest.approx([(1 + 2 / 4) / 3])
    assert compute_means("d_mle") == pytest.approx([(1 + 2 / 2) / 3, (1 + 2 / 4) / 3])
    assert compute_means(get_adversary_name("gan2")) == pytest.approx([(1 + 2 / 16) / 3])  # in gan2's rows


def test_differences_are_paired_and_a_single_seed_is_paired_with_all(rankers):
    found = get_known_difference(rankers, "d_mle", "chance")
    expected = [(2 / 2 - 2 / 50) / 3, (2 / 4 - 2 / 50) / 3]
    assert found.by_seed == pytest.approx(expected)
    assert found.value == pytest.approx(np.mean(expected))
    assert found.verdict == "holds"
    assert get_known_difference(rankers, "chance", "d_mle").verdict == "fails"
    assert get_known_difference(rankers, "g_mle", "chance").verdict == "open"  # one seed
    assert get_known_difference(rankers, "d_mle", "nobody") is None


def test_a_seed_without_ranks_gives_no_difference():
    high, low = np.full(DIALOGS, 0.9), np.full(DIALOGS, 0.1)
    assert compute_ranker_difference([high, high], [low, low]).by_seed == pytest.approx((0.8, 0.8))
    assert compute_ranker_difference([high, None], [low, low]) is None
    assert compute_ranker_difference([None, high], [low, None]) is None
    assert compute_ranker_difference([None], [low]) is None


def test_a_file_without_the_runs_test_dialogs_has_no_ranks(results):
    run = results.points[0].runs[0]
    assert compute_reciprocal_ranks(run).shape == (DIALOGS,)
    assert compute_reciprocal_ranks(replace(run, cell="seed=2")) is None


def test_true_answers_of_a_method_have_relevance_1(rankers):
    first, second = rankers["g_mle"].compute_true_shares(), rankers["gan2"].compute_true_shares()
    assert [np.unique(each).tolist() for each in (*first, *second)] == [pytest.approx([1 / 3]), pytest.approx([2 / 3])]
    found = compute_ranker_difference(second, first)
    assert (found.value, found.low, found.high) == pytest.approx((1 / 3, 1 / 3, 1 / 3))


def test_in_dialogs_the_setting_with_the_highest_validation_mrr_is_chosen():
    def make_point(alpha: float, val: float | None, test: float) -> Point:
        numbers = {("test", "ranking", "MRR"): test} | ({} if val is None else {("val", "ranking", "MRR"): val})
        return Point((Run("g_dis", {"alpha": alpha, "seed": 1}, "", numbers, {}, Path(), cell=f"alpha={alpha}"),))

    points = (
        make_point(1.0, 0.5, 0.9),
        make_point(0.5, 0.6, 0.4),
        make_point(0.25, 0.55, 0.95),
        make_point(0.1, None, 0.99),
    )
    (choice,) = choose_best(Results(points), MRR)
    assert (choice.point, choice.basis, choice.candidates) == (points[1], SelectionBasis.MET, 4)
    (choice,) = choose_best(Results(points[3:]), MRR)
    assert (choice.point, choice.basis) == (points[3], SelectionBasis.UNMEASURED)


def test_the_interval_is_that_of_paired_differences():
    """The two rankers vary over dialogs, and their difference does not."""
    ranks = np.random.default_rng(0).random(DIALOGS)
    found = compute_ranker_difference([ranks], [ranks - 0.1])
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
