"""Tables of visual dialog: the reported numbers, and the cells of every column of answers."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.results import Point, Results, Run
from pipeline.analysis.selection import Choice, SelectionBasis
from pipeline.dialog.report.dialog_tables import REPORTED, build_dialog_tables

ANSWERS = {
    ("answers", "true"): 0.51234,
    ("answers", "relevance"): 0.62345,
    ("answers", "words_per_caption"): 3.14159,
    ("answers", "distinct_captions"): 0.27182,
    ("human_answers", "true"): 0.81234,
    ("human_answers", "relevance"): 0.92345,
    ("human_answers", "words_per_caption"): 2.71828,
    ("human_answers", "distinct_captions"): 0.31415,
    ("judges", "adapted", "human_preferred"): 76.543,
}


@pytest.mark.parametrize("name", REPORTED)
def test_reported_recalls_grow_with_k_and_agree_with_the_mean_rank(name):
    mrr, first, fifth, tenth, mean_rank = REPORTED[name]
    assert 0 < first < fifth < tenth < 100
    # the reciprocal rank is 1 at rank 1, at most 1/2 up to rank 5, 1/6 up to 10 and 1/11 beyond
    upper = first + (fifth - first) / 2 + (tenth - fifth) / 6 + (100 - tenth) / 11
    lower = first + (fifth - first) / 5 + (tenth - fifth) / 10 + (100 - tenth) / 100
    assert lower < 100 * mrr < upper
    assert mean_rank > (first + 2 * (fifth - first) + 6 * (tenth - fifth) + 11 * (100 - tenth)) / 100


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "captions.parquet"
    rows = {"split": ["test"] * 2, "image": [1, 2], "round": [1, 1], "rank": [1, 2], "relevance_answer": [1.0, 0.5]}
    pq.write_table(pa.table(rows), path)
    return path


def test_each_answer_column_has_its_number_of_decimals(file: Path):
    numbers = {("test", *keys): value for keys, value in ANSWERS.items()} | {("test", "ranking", "MRR"): 0.75}
    point = Point((Run("g_mle", {"seed": 1}, "signature", numbers, {}, file),))
    choices = [Choice("g_mle", point, SelectionBasis.MET)]
    tables = {table.name: table for table in build_dialog_tables(Results((point,)), choices, "g_mle")}
    assert "kinds" not in tables  # without annotated kinds, the table would have names alone
    ((*cells,),) = tables["answers"].rows
    difference = "0.0000 [0.0000, 0.0000]"
    assert cells == ["g_mle", "0.512", difference, "0.623", "3.14", "0.272", "0.812", "0.923", "2.72", "0.314", "76.5"]
    ((*ranked,),) = tables["generators"].rows
    assert ranked[-5:] == ["0.5386", "44.1", "63.5", "69.2", "16.01"]  # as the paper reports them


def test_the_table_of_kinds_has_the_kinds_of_all_runs(file: Path):
    kinds = {"g_mle": {("test", "kinds", "colour"): 0.5}, "g_dis": {("test", "kinds", "count"): 0.25}}
    points = [Point((Run(name, {"seed": 1}, "signature", numbers, {}, file),)) for name, numbers in kinds.items()]
    choices = [Choice(name, point, SelectionBasis.MET) for name, point in zip(kinds, points, strict=True)]
    tables = {table.name: table for table in build_dialog_tables(Results(tuple(points)), choices, "g_mle")}
    table = tables["kinds"]
    assert [column.label for column in table.columns] == ["Model", "colour", "count"]
    assert [list(row) for row in table.rows] == [["g_mle", "0.500", "–"], ["g_dis", "–", "0.250"]]
