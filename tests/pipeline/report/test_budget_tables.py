"""The budget of each method's training, and learning curves against it."""

from __future__ import annotations

import csv
import json

import pytest

from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.errors import UserError
from pipeline.report.budget_tables import UNKNOWN, average_budgets, build_budget_table, build_learning_panels
from pipeline.report.recording import iterate_tables
from pipeline.report.report_page import write_report
from pipeline.report.training_histories import average_histories, read_training_histories
from pipeline.runtime.processor_seconds import write_processor_seconds


def make_history(*captions: int, hard: bool = True) -> list[dict[str, float]]:
    """Return one entry per ten steps; `captions` are the numbers of captions drawn up to each entry."""
    entries = [
        {"epoch": n, "step": 10 * n, "captions_drawn": drawn, "val/cider": 1 + n / 10, "val/recall@1": 30.0 + n}
        for n, drawn in enumerate(captions, 1)
    ]
    return [entry | {"val/hard_recall@1": 50.0 + entry["epoch"]} for entry in entries] if hard else entries


@pytest.fixture
def trained_world(full_world, make_full_cell):
    """Write the control, Luo with two seeds in the grid, and a method without a history."""
    cells = [make_full_cell("luo", 0.96, 0.5, seed=seed) for seed in (1, 2)]
    single = [make_full_cell(name, 0.96, 0.5, seed=1) for name in ("mle", "psst_multinomial")]
    full_world.write(cells, single)
    root = full_world.sweep.parent
    swept = {
        cell["cell"]: make_history(*captions) for cell, captions in zip(cells, ((320, 640), (340, 1660)), strict=True)
    }
    lines = [{"method": "luo", "cell": name, **entry} for name, entries in swept.items() for entry in entries]
    (full_world.sweep / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "models/mle").mkdir(parents=True)
    (root / "models/mle/history.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in make_history(0, 0)))
    for entries, seconds in zip(
        (make_history(0, 0), *swept.values()), ((1.5, 2.5), (100, 200), (300, 401)), strict=True
    ):
        write_processor_seconds(root / "times", entries, seconds)
    return full_world


def read_runs(world, times: bool = True):
    results = read_results(world.sweep, world.evaluations, first=("mle",), score="R@1 (hard)")
    choices, root = choose_all(results, ReportSettings()), world.sweep.parent
    models = [root / "models" / name for name in ("mle", "psst_multinomial")]
    return (
        results,
        choices,
        read_training_histories(choices, world.sweep / "history.jsonl", models, root / "times" if times else None),
    )


def test_a_budget_is_the_mean_over_seeds_of_the_last_entry(trained_world):
    _, choices, runs = read_runs(trained_world)
    table = build_budget_table(average_budgets(choices, runs))
    assert [column.label for column in table.columns] == ["Method", "steps", "captions drawn", "processor seconds"]
    assert {row[0]: row[1:] for row in table.rows} == {
        "mle": ["20", "0", "2.5"],
        "luo": ["20", "1,150", "300"],
        "psst_multinomial": [UNKNOWN] * 3,
    }


def test_numbers_that_older_trainings_lack_are_shown_as_not_recorded(trained_world):
    _, choices, runs = read_runs(trained_world, times=False)
    old = {"mle": [[{"step": 10.0}]], "luo": runs["luo"], "psst_multinomial": [[]]}
    rows = {row[0]: row[1:] for row in build_budget_table(average_budgets(choices, old)).rows}
    assert rows["mle"] == ["10", UNKNOWN, UNKNOWN]
    assert rows["luo"] == ["20", "1,150", UNKNOWN]
    assert rows["psst_multinomial"] == ["0", "0", "0"]  # a training without steps
    assert build_budget_table(average_budgets(choices, {})) is None


def test_learning_curves_have_the_hard_gallery_and_cider_against_captions_and_seconds(trained_world):
    results, _, runs = read_runs(trained_world)
    histories = {method: average_histories(seeds) for method, seeds in runs.items()}
    panels = build_learning_panels(results, histories)
    assert [(panel.title, panel.x_label) for panel in panels] == [
        ("R@1 (hard) against captions drawn", "captions drawn, in thousands →"),
        ("R@1 (hard) against processor seconds", "processor seconds →"),
        ("CIDEr against captions drawn", "captions drawn, in thousands →"),
        ("CIDEr against processor seconds", "processor seconds →"),
    ]
    points = [{line.label: [(point.x, point.y) for point in line.points] for line in panel.series} for panel in panels]
    assert points[0] == {"MLE": [(0, 51), (0, 52)], "Luo et al.": [(0.33, 51), (1.15, 52)]}
    assert points[3] == {"MLE": [(1.5, 1.1), (2.5, 1.2)], "Luo et al.": [(200, 1.1), (300.5, 1.2)]}
    assert panels[0].series[1].points[1].label == "Luo et al., step 20, 1,150 captions drawn: R@1 (hard) 52.0"
    without_hard = build_learning_panels(results, {"mle": make_history(0, 0, hard=False)})
    assert [panel.title for panel in without_hard] == ["R@1 against captions drawn", "CIDEr against captions drawn"]


def test_the_report_has_the_table_and_the_curves(trained_world, tmp_path):
    world, root = trained_world, trained_world.sweep.parent
    inputs, models = {"processor_seconds": root / "times"}, [root / "models/mle"]
    settings = ReportSettings(score="R@1 (hard)")
    write_report(world.sweep, world.evaluations, world.prepared, None, tmp_path, settings, inputs=inputs, models=models)
    table = dict(iterate_tables((tmp_path / "tables.md").read_text(encoding="utf-8")))["Budget"]
    assert table.rows[1] == ["Luo et al.", "20", "1,150", "300"]
    rows = {row["method"]: row for row in csv.DictReader((tmp_path / "budget.csv").read_text().splitlines())}
    assert (rows["luo"]["captions drawn"], rows["luo"]["processor seconds"]) == ("1150.0", "300.5")
    assert rows["psst_multinomial"]["steps"] == ""
    lines = list(csv.DictReader((tmp_path / "training.csv").read_text().splitlines()))
    assert [row["captions_drawn"] for row in lines if row["method"] == "luo"] == ["330.0", "1150.0"]
    section = (tmp_path / "report.html").read_text(encoding="utf-8").partition('<section id="budget"')[2]
    section = section.partition("</section>")[0]
    assert section.count("<svg viewBox") == 4
    assert "not recorded" in section
    assert (tmp_path / "learning.png").stat().st_size > 0


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: "[1]\n"])
def test_a_damaged_history_is_reported(trained_world, damage):
    path = trained_world.sweep.parent / "models/mle/history.jsonl"
    path.write_text(damage(path.read_text()))
    with pytest.raises(UserError, match=r"mle/history.jsonl: a line is no JSON object \(.*\); run again the stage"):
        read_runs(trained_world)


def test_a_mean_history_ends_with_the_shortest():
    assert average_histories([[{"a": 1, "b": 2}, {"a": 2}], [{"a": 3}]]) == [{"a": 2}]
