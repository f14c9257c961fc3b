import re
from dataclasses import replace

import pytest

from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import add_frozen_speakers, read_results
from pipeline.analysis.selection import ReportSettings
from pipeline.report.comparison_tables import (
    build_compact_comparison,
    build_equal_tables,
    build_rho_table,
    build_rho_tables,
    build_significance_table,
    build_table_at_cider,
    build_table_at_score,
)


def compare_world(world, **settings):
    results = add_frozen_speakers(read_results(world.sweep, world.evaluations, first=("mle",)), ("mle", "luo"))
    return compare_methods(results, ReportSettings(**settings))


def build_tables(comparison):
    return [*build_equal_tables(comparison), *build_rho_tables(comparison)]


def get_cells(table, row):
    labels = [f"{column.group} {column.label}".strip() for column in table.columns]
    (found,) = [cells for cells in table.rows if cells[0].rstrip("‡§") == row]
    return dict(zip(labels, found, strict=True))


def test_recall_at_equal_cider_has_its_interval_and_seeds(full_world):
    comparison = compare_world(full_world)
    slice_ = comparison.at_cider[1]
    table = build_table_at_cider(comparison, slice_)
    row = get_cells(table, "st_multinomial")
    (reading,) = [reading for reading in slice_.readings if reading.curve.label == "st_multinomial"]
    found = reading.estimates[make_recall_keys("judge")]
    assert row["Independent judge R@10"] == f"{found.value:.1f} [{found.interval[0]:.1f}, {found.interval[1]:.1f}]"
    assert row["± over seeds R@10 judge"] == f"{found.spread:.1f} (2)"
    assert "CIDEr 0.912" in table.caption
    assert len(row) == 1 + 4 * 3 + 2


def test_a_curve_that_does_not_reach_the_value_has_dashes_and_its_range_is_noted(full_world):
    comparison = compare_world(full_world, cider_levels=(0.99,))
    table = build_table_at_cider(comparison, comparison.at_cider[0])
    assert set(get_cells(table, "luo").values()) == {"luo", "–"}
    (note,) = [note for note in table.notes if note.startswith("–, not reached")]
    assert "luo 0.860 to 0.970" in note
    assert "mle 0.960;" in note
    assert "psst" not in note


def test_notes_state_the_rule_and_the_resamples(full_world):
    comparison = compare_world(full_world)
    notes = " ".join(build_table_at_cider(comparison, comparison.at_cider[0]).notes)
    assert "mle has 0.960 on the test split" in notes
    assert "1,000 resamples of the test images" in notes
    assert "same share of the CIDEr of mle" in notes
    recall = " ".join(build_table_at_score(comparison, comparison.at_score[0]).notes)
    assert "quarters" in recall
    assert "same share" not in recall


def test_differences_carry_interval_mark_and_p(full_world):
    comparison = compare_world(full_world)
    slice_ = comparison.at_cider[1]
    table = build_significance_table(comparison, slice_)
    row = get_cells(table, "luo")
    assert re.fullmatch(r"−\d+\.\d \[−\d+\.\d, −\d+\.\d\]\*", row["Own listener Δ R@10"])
    assert row["Own listener p"] == f"{slice_.differences['luo']['own'].p:.3f}"
    unclear = [label for label, found in slice_.differences.items() if not found["judge"].clear]
    assert unclear
    assert all(not get_cells(table, label)["Independent judge Δ R@10"].endswith("*") for label in unclear)
    assert slice_.reference.label in table.caption
    assert any(f"all {sum(map(len, slice_.differences.values()))} differences" in note for note in table.notes)


def make_bounded_slice(full_world, make_full_cell, **points_by_method):
    cells = [
        make_full_cell(method, cider, share, **{"lambda": cider, "seed": 1})
        for method, points in points_by_method.items() for cider, share in points
    ]  # fmt: skip
    full_world.write(cells, [])
    comparison = compare_methods(read_results(full_world.sweep, []), ReportSettings(cider_levels=(0.9,)))
    return comparison, comparison.at_cider[0]


def test_bounds_are_counted_and_undecided_differences_are_dashes_with_a_reason(full_world, make_full_cell):
    above, below = ((0.95, 0.9), (1.05, 0.8)), ((0.95, 0.3), (1.05, 0.2))
    psst = ((0.85, 0.65), (0.95, 0.55))
    comparison, slice_ = make_bounded_slice(full_world, make_full_cell, psst_multinomial=psst, luo=above, st=below)
    notes = " ".join(build_table_at_cider(comparison, slice_).notes)
    assert "Marked §, 2 of 3 rows: every setting of the method has a higher CIDEr" in notes
    table = build_significance_table(comparison, slice_)
    assert re.fullmatch(r"≥\+\d+\.\d \[\+\d+\.\d, \+\d+\.\d\]\*", get_cells(table, "luo")["Own listener Δ R@10"])
    assert get_cells(table, "st")["Own listener Δ R@10"] == get_cells(table, "st")["Own listener p"] == "–"
    assert any(
        re.match(r"– \(1 of 2 rows have only dashes\): both numbers are lower bounds", note) for note in table.notes
    )
    assert any(note.startswith("≥, ≤: one of the two numbers is a lower bound") for note in table.notes)


def test_no_difference_of_two_bounds_is_printed(full_world, make_full_cell):
    above = ((0.95, 0.9), (1.05, 0.8))
    comparison, slice_ = make_bounded_slice(full_world, make_full_cell, psst_multinomial=above, luo=above, st=above)
    table = build_significance_table(comparison, slice_)
    assert {cell for row in table.rows for cell in row[1:]} == {"–"}
    assert any(note.startswith("– (2 of 2 rows have only dashes)") for note in table.notes)


def test_the_compact_table_explains_dashes_of_its_own_judges_alone(full_world, make_full_cell):
    spanning = ((0.85, 0.65), (0.95, 0.55))
    comparison, slice_ = make_bounded_slice(full_world, make_full_cell, psst_multinomial=spanning, luo=spanning)
    first, middle, *_, last = comparison.results.judges
    ((label, by_judge),) = slice_.differences.items()
    for missing, noted in ((middle, False), (last, True)):
        kept = {judge: difference for judge, difference in by_judge.items() if judge != missing}
        table = build_significance_table(comparison, replace(slice_, differences={label: kept}), compact=True)
        assert any("rows have only dashes" in note for note in table.notes) == noted
    assert first in by_judge


def test_a_reference_below_the_level_is_noted(full_world, make_full_cell):
    low, spanning = ((0.7, 0.9), (0.8, 0.8)), ((0.85, 0.65), (0.95, 0.55))
    comparison, slice_ = make_bounded_slice(full_world, make_full_cell, psst_multinomial=low, luo=spanning)
    table = build_table_at_cider(comparison, slice_)
    assert set(get_cells(table, "psst_multinomial").values()) == {"psst_multinomial", "–"}
    assert "–, not reached (CIDEr measured): psst_multinomial 0.700 to 0.800." in table.notes
    assert "psst_multinomial is not reached, so there are no differences from it here." in table.notes
    assert build_significance_table(comparison, slice_) is None


def test_a_curve_whose_score_was_not_measured_is_noted_as_not_reached_only_beyond_its_range(full_world, make_full_cell):
    cells = [
        make_full_cell(method, cider, share, **{"lambda": cider, "seed": 1})
        for method in ("psst_multinomial", "luo", "st") for cider, share in ((0.8, 0.6), (0.95, 0.5))
    ]  # fmt: skip
    for cell in cells:
        if cell["method"] == "luo" or (cell["method"], cell["settings"]["lambda"]) == ("st", 0.95):
            for judge in cell["test"]["judges"].values():
                del judge["text_to_image"]
    full_world.write(cells, [])
    comparison = compare_methods(read_results(full_world.sweep, []), ReportSettings(cider_levels=(0.9, 1.0)))
    inside, beyond = (build_table_at_cider(comparison, slice_).notes for slice_ in comparison.at_cider)
    assert "–: no setting of luo, st that reaches this CIDEr has R@10 (own listener)." in inside
    assert not any(note.startswith("–, not reached") for note in inside)
    assert any(note.startswith("–, not reached") and "luo 0.800 to 0.950; st 0.800 to 0.950" in note for note in beyond)


def test_the_note_names_the_settings_along_which_the_curves_run(full_world, make_full_cell):
    cells = [
        make_full_cell("guidance", cider, share, **{"gamma": gamma, "seed": 1})
        for gamma, cider, share in ((1.0, 0.95, 0.5), (2.0, 0.85, 0.6))
    ]  # fmt: skip
    full_world.write(cells, [])
    comparison = compare_methods(read_results(full_world.sweep, []), ReportSettings(cider_levels=(0.9,)))
    notes = build_table_at_cider(comparison, comparison.at_cider[0]).notes
    assert any(note.startswith("Read from each method's curve along γ (seeds averaged)") for note in notes)


def test_language_at_equal_recall(full_world):
    comparison = compare_world(full_world, score_levels=(80.0,))
    table = build_table_at_score(comparison, comparison.at_score[0])
    row = get_cells(table, "st_multinomial")
    assert list(row)[1:] == ["CIDEr", "BLEU-4", "METEOR", "ROUGE-L", "± over seeds CIDEr"]
    assert re.fullmatch(r"0\.\d{3} \[0\.\d{3}, \d\.\d{3}\]", row["CIDEr"])
    assert "R@10 80%" in table.caption


def test_the_table_has_a_row_per_rho(full_world):
    comparison = compare_world(full_world)
    table = build_rho_table(comparison, comparison.along_rho[0])
    # the curves end close to this CIDEr, so ‡ marks every row
    assert [row[0] for row in table.rows] == ["0‡", "0.25‡", "0.5‡", "0.75‡", "1‡"]
    assert any(note.startswith("Marked ‡: in more than 5% of the resamples the curve ends") for note in table.notes)
    assert f"CIDEr {comparison.along_rho[0].level:.3f}" in table.caption


def test_all_tables_have_rows_of_one_length_different_names_and_the_protocol(full_world):
    comparison = compare_world(full_world)
    tables = build_tables(comparison)
    assert len(tables) == 2 + 2 + 2 + 1
    assert len({table.name for table in tables}) == len(tables)
    for table in [*tables, *build_compact_comparison(comparison)]:
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert any(note.startswith("Protocol: gallery test 40") for note in table.notes)
        assert re.fullmatch(r"[\w-]+", table.name)
        assert table.warning == ""


def test_two_protocols_are_announced_in_every_table_that_mixes_them(full_world, make_full_cell):
    cells = [make_full_cell(m, c, t, **{"lambda": c, "seed": 1})
             for m in ("luo", "st") for c, t in ((0.9, 0.8), (1.0, 0.6))]  # fmt: skip
    for entry in cells[:2]:
        entry["signature"] = entry["signature"].replace("beam 2", "greedy")
    full_world.write(cells, [])
    for folder in full_world.evaluations:
        (folder / "metrics.json").unlink()
    comparison = compare_methods(read_results(full_world.sweep, []), ReportSettings())
    tables = build_tables(comparison)
    tables += build_compact_comparison(comparison)
    assert len(tables) == 6 + 4
    for table in tables:
        assert "2 protocols" in table.warning
        assert {row[0].rstrip("‡]").rpartition(" ")[2] for row in table.rows} <= {"[A", "[B"}


def test_without_single_captions_scores_there_are_numbers_without_intervals_and_no_differences(world):
    comparison = compare_world(world)
    tables = build_tables(comparison)
    assert not [table for table in tables if table.name.startswith("significance")]
    table = build_table_at_cider(comparison, comparison.at_cider[0])
    assert "[" not in "".join(cell for row in table.rows for cell in row)
    assert any(note.startswith("No intervals for mle") for note in table.notes)
    assert "Adapted listener" not in {column.group for column in table.columns}


@pytest.mark.parametrize("levels", [(), None])
def test_no_levels_make_no_tables(world, make_cell, levels):
    world.write([make_cell("luo", 0.9, 70.0, seed=1)], [])
    comparison = compare_methods(
        read_results(world.sweep, []), ReportSettings(cider_levels=levels, score_levels=levels)
    )
    assert build_tables(comparison) == []
    assert build_compact_comparison(comparison) == []
