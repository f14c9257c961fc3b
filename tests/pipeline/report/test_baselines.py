"""Baselines without training have rows below the methods, and a note names methods not above the template."""

from __future__ import annotations

import pytest

from pipeline.analysis.bootstrap import resample
from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.report.caption_tables import build_caption_tables
from pipeline.report.comparison_tables import build_table_at_cider
from pipeline.report.number_files import format_markdown
from pipeline.report.result_tables import build_compact_tables, build_galleries_table, build_results_table

JUDGES = ("own", "adapted", "pretrained", "judge")


@pytest.fixture
def results_and_choices(full_world, make_full_cell):
    """Return results and choices of mle and the template, which retrieve every second image among its neighbours."""
    entry = make_full_cell("mle", 0.96, 0.5, seed=1)
    for n, row in enumerate(entry["captions"]):
        names = [f"{prefix}neighbourhood_{judge}" for prefix in ("", "template_") for judge in JUDGES]
        row |= dict.fromkeys(names, 1 + n % 2)
    for split in ("val", "test"):
        for judge in JUDGES:
            gallery = {"R@1": 50.0, "MRR": 75.0, "random": 12.5, "alone": 0.0}
            entry[split]["judges"][judge]["galleries"]["neighbourhood"] = gallery
        found = {judge: {"galleries": {"neighbourhood": {"R@1": 50.0}}} for judge in JUDGES}
        other = {"language": {"CIDEr": 0.123}, "judges": found}
        entry[split]["baselines"] = {"template": other | {"faithfulness": {"precision": 0.625}}}
    full_world.write([], [entry])
    results = read_results(full_world.sweep, full_world.evaluations)
    return results, choose_all(results, ReportSettings())


def get_cells(table, row):
    labels = [f"{column.group} {column.label}".strip() for column in table.columns]
    (found,) = [cells for cells in table.rows if cells[0] == row]
    return dict(zip(labels, found, strict=True))


def test_the_main_table_has_neighbours_beside_the_whole_gallery_and_baselines_last(results_and_choices):
    table = build_results_table(*results_and_choices)
    assert [row[0] for row in table.rows] == ["mle", "human", "template"]
    row = get_cells(table, "template")
    assert (row["Language metrics CIDEr"], row["Own listener R@1 (hard)"]) == ("0.123", "50.0")
    assert (row["Chosen λ"], row["Own listener R@10"], row["Independent judge R@1 (hard)"]) == ("–", "–", "50.0")
    assert get_cells(table, "mle")["Independent judge R@1 (hard)"] == "50.0"
    assert "R@1 (hard)" not in " ".join(
        column.label for column in build_results_table(*results_and_choices, "image_to_text").columns
    )
    row = get_cells(build_galleries_table(*results_and_choices), "mle")
    assert (row["Hard gallery R@1 judge"], row["Hard gallery MRR judge"]) == ("50.0", "75.0")


def test_notes_state_random_recall_and_methods_not_above_the_template(results_and_choices):
    notes = " ".join(build_results_table(*results_and_choices, samples=resample(results_and_choices[0])).notes)
    assert "12.5 at random" in notes
    assert "Not clearly above the template by R@1 (hard)" in notes
    assert "own: mle; adapted: mle; pretrained: mle; judge: mle." in notes


def test_notes_name_the_method_of_each_template(full_world, make_full_cell):
    evaluated = []
    for method in ("mle", "luo"):
        entry = make_full_cell(method, 0.96, 0.5, seed=1)
        for n, row in enumerate(entry["captions"]):
            row |= {"neighbourhood_own": 1, "template_neighbourhood_own": 2 if method == "mle" else 1 + n % 2}
        for split in ("val", "test"):
            found = entry[split]["judges"]["own"]
            found["galleries"]["neighbourhood"] = {"R@1": 100.0, "random": 12.5}
            hard = {"neighbourhood": {"R@1": 0.0 if method == "mle" else 50.0}}
            entry[split]["baselines"] = {"template": {"judges": {"own": {"galleries": hard}}}}
        evaluated.append(entry)
    full_world.write([], evaluated)
    results = read_results(full_world.sweep, full_world.evaluations, first=("mle",))
    table = build_results_table(results, choose_all(results, ReportSettings()), samples=resample(results))
    notes = " ".join(table.notes)
    for method in ("mle", "luo"):
        assert f"template ({method})" in [row[0] for row in table.rows]
        assert f"template ({method}): the captions of {method} with place" in notes
        assert f"Not clearly above the template ({method}) by R@1 (hard)" in notes


def test_terminal_and_truth_tables_have_baseline_rows(results_and_choices):
    first, second, last = build_compact_tables(*results_and_choices, resample(results_and_choices[0]))
    row = get_cells(first, "template")
    assert {name: cell for name, cell in row.items() if "(hard)" in name} == {
        "R@1 (hard) own": "50.0",
        "R@1 (hard) judge": "50.0",
    }
    assert row["true"] == "0.625"
    assert last.notes[1] == "true: share of the captions' claims that are true of their image."
    assert get_cells(second, "template") == {"Method": "template", **{f"R@10 {judge}": "–" for judge in JUDGES}}
    assert second.caption == "R@10 among all images, at the chosen λ"
    assert first.notes == second.notes == ()
    assert "Not clearly above" in " ".join(last.notes)
    assert max(map(len, format_markdown([first, second, last]).splitlines())) <= 120
    tables = {table.name: table for table in build_caption_tables(*results_and_choices)}
    assert get_cells(tables["faithfulness"], "template")["All facts true"] == "0.625"
    assert [row[0] for row in tables["diversity"].rows] == ["mle"]  # a baseline without measurements has no row


def test_tables_at_equal_cider_have_human_and_template_captions_at_their_own_cider(results_and_choices):
    results, _ = results_and_choices
    comparison = compare_methods(results, ReportSettings(cider_levels=(0.9,)))
    table = build_table_at_cider(comparison, comparison.at_cider[0], compact=True)
    assert [row[0] for row in table.rows] == ["mle§", "human", "template (0.123)"]
    assert get_cells(table, "template (0.123)")["R@1 (hard) judge"].startswith("50.0 [")
    assert get_cells(table, "human")["R@1 (hard) judge"] == "–"
    assert "their own CIDEr is in brackets" in " ".join(table.notes)
