"""The report on dialogs: attention weights, escaped texts, and the numbers of both splits."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.analysis.results import Point, Results, Run
from pipeline.analysis.selection import ReportSettings
from pipeline.dialog.report.dialog_page import AttentionMap, _read_attention, write_dialog_report
from pipeline.errors import UserError

ROUNDS = ((3, 1), (3, 2), (5, 1), (5, 2), (8, 1), (8, 2))  # image, round


def make_answer_table(rounds: tuple[tuple[int, int], ...]) -> pa.Table:
    """Return the table of a captions file whose answers contain HTML."""
    rows = [
        {"split": "test", "image": image, "round": number, "id": f"id {image}", "file": f"{image}.jpg"}
        | {"caption": f"caption of {image}", "question": f"question {number} about {image}", "human": "yes"}
        | {"answer": f"<i>answer {number} & {image}</i>", "relevance_answer": 1.0, "rank": 3, "best": ["yes", "no"]}
        | {"history_shares": [0.25, 0.75], "regions_shares": [0.1, 0.2, 0.3, 0.4]}
        | {"rank_d_mle": 2}
        for image, number in rounds
    ]
    return pa.Table.from_pylist(rows)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Write the report, without pictures, of three dialogs of two rounds, and return its folder."""
    pq.write_table(make_answer_table(ROUNDS), tmp_path / "captions.parquet")
    (tmp_path / "manifest.json").write_text(json.dumps({"dataset": "toys"}))
    numbers = {("val", "ranking", "MRR"): 0.25, ("test", "ranking", "MRR"): 0.5, ("val", "ranking", "R@1"): 12.0}
    numbers |= {("test", "judges", "d_mle", "ranking", "MRR"): 0.6}
    point = Point((Run("g_dis", {"seed": 1}, "signature", numbers, {}, tmp_path / "captions.parquet"),))
    settings = ReportSettings(images=3, control="g_dis")
    (tmp_path / "out").mkdir()
    write_dialog_report(Results((point,)), tmp_path, None, tmp_path / "out", settings)
    return tmp_path / "out"


def test_the_curve_has_the_numbers_of_validation_and_of_test(report):
    lines = list(csv.DictReader((report / "curve.csv").read_text().splitlines()))
    assert [(line["split"], line["MRR"], line["R@1"]) for line in lines] == [
        ("val", "0.25", "12.0"),
        ("test", "0.5", ""),
    ]


def test_dialogs_without_pictures_are_shown_with_escaped_answers(report):
    page = (report / "report.html").read_text()
    assert "data:image" not in page
    assert page.count('class="dialog"') == 3
    assert page.count('class="round"') == len(ROUNDS)
    for image, number in ROUNDS:
        assert page.count(f"<h3>{number}. question {number} about {image}?</h3>") == 1
        assert page.count(f"&lt;i&gt;answer {number} &amp; {image}&lt;/i&gt;") == 1
    assert "<i>" not in page


@pytest.mark.parametrize(("shorter", "images"), [("best", {3, 5}), ("other", {3, 5, 8})])
def test_methods_may_have_answered_different_dialogs(tmp_path, shorter, images):
    """The report shows the dialogs of the method with the highest validation MRR; other methods may lack some."""
    (tmp_path / "manifest.json").write_text(json.dumps({"dataset": "toys"}))
    (tmp_path / "out").mkdir()
    points = []
    for method, validation in (("best", 0.5), ("other", 0.25)):
        file = tmp_path / f"{method}.parquet"
        pq.write_table(make_answer_table(ROUNDS[:4] if method == shorter else ROUNDS), file)
        numbers = {("val", "ranking", "MRR"): validation, ("test", "ranking", "MRR"): 0.5}
        points.insert(0, Point((Run(method, {"seed": 1}, "signature", numbers, {}, file),)))
    settings = ReportSettings(images=3, control="best")
    write_dialog_report(Results(tuple(points)), tmp_path, None, tmp_path / "out", settings)
    page = (tmp_path / "out" / "report.html").read_text()
    assert {image for image in (3, 5, 8) if f"question 1 about {image}?" in page} == images


def test_methods_without_validation_numbers_are_reported(tmp_path):
    file, numbers = tmp_path / "captions.parquet", {("test", "ranking", "MRR"): 0.5}
    runs = [Run("g_dis", {"seed": 1, "alpha": alpha}, "signature", numbers, {}, file) for alpha in (0.1, 0.2)]
    with pytest.raises(UserError, match=r"no validation MRR; add val to evaluate\.splits"):
        write_dialog_report(
            Results(tuple(Point((run,)) for run in runs)), tmp_path, None, tmp_path, ReportSettings(control="g_dis")
        )


def test_region_attention_is_divided_by_its_maximum_and_history_attention_ends_before_the_round():
    row = {"history_shares": [0.25, 0.75, 0.0], "regions_shares": [0.1, 0.2, 0.3, 0.4], "round": 2}
    assert _read_attention(row) == AttentionMap([0.25, 0.75], [[0.25, 0.5], [0.75, 1.0]])
    assert _read_attention(row | {"regions_shares": [0.5, 0.25, 0.25]}).cells == []  # three regions form no square
    assert _read_attention(row | {"history_shares": None}) is None
