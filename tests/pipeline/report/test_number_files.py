import csv
import io

import pytest

from pipeline.analysis.comparison import compare_methods
from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import add_frozen_speakers, read_results
from pipeline.analysis.selection import ReportSettings, choose_all, describe_rule
from pipeline.report import number_files
from pipeline.report.comparison_tables import build_compact_comparison, build_equal_tables, build_rho_tables
from pipeline.report.number_files import format_comparison_csv, format_curve_csv, format_markdown, format_rho_csv
from pipeline.report.result_tables import build_compact_tables, build_galleries_table, build_results_table


def format_tables(world, compact=True):
    results = read_results(world.sweep, world.evaluations, first=("mle",))
    results = add_frozen_speakers(results, ("mle",))
    settings = ReportSettings()
    choices, comparison = choose_all(results, settings), compare_methods(results, settings)
    if compact:
        tables = [*build_compact_tables(results, choices), *build_compact_comparison(comparison)]
    else:
        tables = [build_results_table(results, choices), build_galleries_table(results, choices)]
        tables += [*build_equal_tables(comparison), *build_rho_tables(comparison)]
    return format_markdown(tables, describe_rule(results, settings))


def split_tables(text):
    return [part for part in text.split("\n\n") if part.startswith("|")]


def test_markdown_fits_a_terminal_and_its_columns_are_aligned(world, full_world):
    assert max(map(len, format_tables(world).splitlines())) <= 110
    assert max(map(len, format_tables(full_world).splitlines())) <= 120
    text = format_tables(world)
    for table in split_tables(text):
        assert len({len(line) for line in table.splitlines()}) == 1
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "0.945±0.007" in split_tables(text)[0]
    assert "standard deviation" in text
    assert "SPICE was not computed" in text


def test_the_terminal_shows_results_recall_at_equal_cider_and_significance(full_world):
    text = format_tables(full_world)
    assert text.startswith("- λ is chosen on the validation split")
    captions = [part for part in text.split("\n\n") if part.startswith("**")]
    assert captions[0] == "**Results at the chosen λ**"
    assert captions[2] == "**R@10 at CIDEr 0.960**"
    assert captions[3].startswith("**R@10 minus that of PSST-Multinomial")
    assert len(split_tables(text)) == 2 + 2 + 2
    assert "MLE (frozen)" in text
    assert "mle" not in text


def test_compact_tables_have_other_titles_than_the_full_ones(full_world):
    """The tables of both kinds are recorded in one file, by title."""
    compact, full = (
        {part for part in format_tables(full_world, each).split("\n\n") if part.startswith("**")}
        for each in (True, False)
    )
    assert len(compact) == 6
    assert len(full) == 9
    assert not compact & full


def test_every_table_has_its_protocol_and_other_notes_occur_once(full_world):
    text = format_tables(full_world, compact=False)
    assert text.count("- Protocol: gallery test 40") == len(split_tables(text)) == 2 + 7
    assert text.count("± is the standard deviation over the seeds.") == 1
    assert "| Own listener R@10 |" in text.replace("  ", "")


def test_a_vertical_bar_in_a_name_does_not_split_a_cell(world, make_cell, control):
    world.write([make_cell("a|b", 0.95, 70.0, seed=1)], [control])
    assert "| a\\|b " in format_tables(world)


def test_curve_csv_has_a_line_per_run_and_split_with_numbers_in_full(world, make_cell):
    entry = make_cell("luo", 1 / 3, 70.0, **{"lambda": 0.5, "seed": 1})
    del entry["test"]["judges"]["judge"]
    world.write([entry], [])
    rows = list(csv.DictReader(io.StringIO(format_curve_csv(read_results(world.sweep, [])))))
    assert [row["split"] for row in rows] == ["val", "test"]
    assert float(rows[0]["CIDEr"]) == 1 / 3
    assert rows[0]["R@10 own"] == "70.0"
    assert rows[1]["R@10 pretrained"] == "66.0"
    assert rows[1]["R@10 judge"] == rows[1]["rho"] == rows[1]["SPICE"] == ""
    assert rows[0]["lambda"] == "0.5"


def test_curve_csv_has_the_adapted_listener_galleries_and_faithfulness(full_world):
    rows = list(csv.DictReader(io.StringIO(format_curve_csv(read_results(full_world.sweep, [])))))
    run = read_results(full_world.sweep, []).runs[0]
    assert float(rows[1]["R@10 adapted"]) == run.value("test", *make_recall_keys("adapted"))
    assert float(rows[1]["random100 R@10 judge"]) == run.value(
        "test", *make_recall_keys("judge", "R@10", "galleries", "random100")
    )
    assert (rows[1]["1000 R@10 own"], rows[1]["facts told"], rows[1]["Div-2"]) == ("", "0.3", "0.33")


def test_the_comparison_as_csv_has_numbers_in_full(full_world):
    results = read_results(full_world.sweep, full_world.evaluations)
    comparison = compare_methods(results, ReportSettings())
    rows = list(csv.DictReader(io.StringIO(format_comparison_csv(comparison))))
    slice_ = comparison.at_cider[0]
    (luo,) = [reading for reading in slice_.readings if reading.curve.label == "luo"]
    (row,) = [
        row for row in rows
        if (row["fixed"], row["at"], row["method"], row["metric"], row["judge"])
        == ("CIDEr", repr(slice_.level), "luo", "R@10", "judge")
    ]  # fmt: skip
    found = luo.estimates[make_recall_keys("judge")]
    assert (float(row["value"]), float(row["low"]), float(row["high"])) == (found.value, *found.interval)
    assert (float(row["spread"]), row["seeds"]) == (found.spread, "2")
    assert float(row["difference"]) == slice_.differences["luo"]["judge"].value
    interval = float(row["difference low"]), float(row["difference high"])
    assert interval == slice_.differences["luo"]["judge"].interval
    assert float(row["p"]) == slice_.differences["luo"]["judge"].p
    assert (row["reference"], row["bound"], row["difference bound"]) == (slice_.reference.label, "", "")
    above = {reading.curve.label for reading in comparison.at_cider[1].readings if reading.is_lower_bound}
    level = repr(comparison.at_cider[1].level)
    assert above == {
        row["method"] for row in rows if row["bound"] == "≥" and (row["fixed"], row["at"]) == ("CIDEr", level)
    }
    at_recall = [row for row in rows if row["fixed"] == "R@10 own"]
    assert {row["metric"] for row in at_recall} == {"CIDEr", "BLEU-4", "METEOR", "ROUGE-L"}
    assert {row["judge"] for row in at_recall} == {row["difference"] for row in at_recall} == {""}


def test_rho_csv_has_a_line_per_rho_and_judge(full_world):
    comparison = compare_methods(read_results(full_world.sweep, full_world.evaluations), ReportSettings())
    rows = list(csv.DictReader(io.StringIO(format_rho_csv(comparison))))
    assert [row["rho"] for row in rows if row["judge"] == "own"] == ["0.0", "0.25", "0.5", "0.75", "1.0"]
    assert len(rows) == 5 * 4
    assert float(rows[0]["value"]) == comparison.along_rho[0].readings[0].estimates[make_recall_keys("own")].value


def test_a_warning_is_the_first_note_of_its_table(world, cells, control):
    control["signature"] = control["signature"].replace("beam 2", "greedy")
    world.write(cells, [control])
    parts = format_tables(world).split("\n\n")
    below = parts[parts.index("**More metrics at the chosen λ**") + 2]
    assert below.startswith("- **Warning:** These rows were measured under 2 protocols")


@pytest.mark.parametrize("word", ["PSST-Multinomial", f"data/{'a' * 120}"])
def test_notes_are_wrapped_between_words_only(word):
    text = " and".join([""] * 26).strip()  # the word crosses the end of the line
    assert len(text) < number_files.WIDTH < len(text) + len(word)
    assert word in format_markdown([], f"{text} {word}")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("<script>alert(1)</script>", r"\<script>alert(1)\</script>"),
        ("<!-- a --><img src=x onerror=alert(1)>", r"\<!-- a -->\<img src=x onerror=alert(1)>"),
        ("[x](javascript:alert(1))", r"[x]\(javascript:alert(1))"),
        ("![x](http://far.example/y)", r"![x]\(http://far.example/y)"),
        (r"\<script>alert(1)</script>", r"\\\<script>alert(1)\</script>"),
        (r"\\<img src=x onerror=alert(1)>", r"\\\\\<img src=x onerror=alert(1)>"),
        ("p < .001, a | b", "p < .001, a | b"),
        ("one\n\n# two", "one # two"),
    ],
)
def test_markup_in_a_cell_is_shown_as_it_is_written(written, shown):
    assert number_files.escape_markdown(written) == shown


def test_no_cell_is_a_formula_to_a_spreadsheet():
    texts = ['=HYPERLINK("http://far.example")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "a=b", "", "luo"]
    rows = [{"method": text, "value": -0.5} for text in texts]
    read = list(csv.reader(io.StringIO(number_files.format_csv(["method", "value"], rows), newline="")))[1:]
    assert [row[0] for row in read] == [*(f"'{text}" for text in texts[:5]), "' =1", "a=b", "", "luo"]
    assert {row[1] for row in read} == {"-0.5"}
