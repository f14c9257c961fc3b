import csv
import io

from pipeline.reporting.export import curve_csv, markdown
from pipeline.reporting.results import read_results
from pipeline.reporting.selection import ReportSettings, choose_all, rule
from pipeline.reporting.tables import compact_tables


def table_md(world):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    settings = ReportSettings()
    return markdown(compact_tables(results, choose_all(results, settings)), rule(results, settings))


def test_markdown_fits_a_terminal_and_its_columns_stand_in_line(world):
    text = table_md(world)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 110
    first, second = text.split("\n\n")[:2]
    for table in (first, second):
        assert len({len(line) for line in table.splitlines()}) == 1
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "0.945±0.007" in first
    assert "standard deviation" in text
    assert "SPICE was not computed" in text


def test_a_bar_in_a_name_does_not_make_a_column(world, make_cell, control):
    world.write([make_cell("a|b", 0.95, 70.0, seed=1)], [control])
    assert "| a\\|b " in table_md(world)


def test_curve_csv_has_a_line_a_run_and_split_with_numbers_in_full(world, make_cell):
    entry = make_cell("luo", 1 / 3, 70.0, **{"lambda": 0.5, "seed": 1})
    del entry["test"]["judge"]
    world.write([entry], [])
    rows = list(csv.DictReader(io.StringIO(curve_csv(read_results(world.sweep, [])))))
    assert [row["split"] for row in rows] == ["val", "test"]
    assert float(rows[0]["CIDEr"]) == 1 / 3
    assert rows[0]["R@10 own"] == "70.0"
    assert rows[1]["R@10 before"] == "66.0"
    assert rows[1]["R@10 judge"] == rows[1]["rho"] == rows[1]["SPICE"] == ""
    assert rows[0]["lambda"] == "0.5"


def test_a_warning_stands_first_below_the_tables(world, cells, control):
    control["signature"] = control["signature"].replace("beam 2", "greedy")
    world.write(cells, [control])
    first = table_md(world).split("\n\n")[2].splitlines()[0]
    assert first.startswith("- **Warning:** These rows were measured under 2 protocols")
