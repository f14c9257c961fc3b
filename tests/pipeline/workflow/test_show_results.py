"""The output of `make repro`: the table of the run beside the recorded results of several starts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from pipeline.config.overlays import compose_profile_text
from pipeline.report.result_file import PrintedTable, ResultFile, locate_result_file
from pipeline.report.table_captions import RESULTS
from pipeline.workflow.show_results import format_comparison, main

ROOT = Path(__file__).parents[3]
# This code prints the modules that it imports, and how often it opens each file of profiles/ and results/.
PROBE = """
import collections, json, os, sys
from pathlib import Path
opened = collections.Counter()
sys.addaudithook(lambda event, arguments: event == "open" and opened.update([str(arguments[0])]))
from pipeline.workflow import show_results
assert show_results.main() == 0
read = {path: n for path, n in opened.items() if path.startswith(("profiles/", "results/"))}
print(json.dumps({"modules": sorted(sys.modules), "read": read}))
"""


def make_result(*recalls: str) -> ResultFile:
    rows = [["MLE", recalls[0]], ["PSST-Multinomial", recalls[1]]]
    table = PrintedTable(columns=["Method", "R@1 (hard) judge"], rows=rows)
    return ResultFile(command="c", commit="a", date="d", machine="m", seeds=[1], tables={RESULTS: table})


def write_run() -> None:
    """Write a run of the profile scenes into the working folder."""
    shutil.copytree(ROOT / "profiles", "profiles")
    Path("params.yaml").write_text(compose_profile_text("scenes"))
    for folder in ("results", "data/report"):
        Path(folder).mkdir(parents=True)
    Path("data/report/table.md").write_text(
        f"**{RESULTS}**\n\n| Method | R@1 (hard) judge |\n| --- | --: |\n| MLE | 41.0 |\n| PSST-Multinomial | 42.0 |\n"
    )


def record_starts() -> None:
    """Record three starts of the profile scenes."""
    for start, numbers in {1: ("40.0", "50.0"), 2: ("42.0", "51.0"), 3: ("41.0", "52.0")}.items():
        locate_result_file(Path(), f"scenes@start{start}").write_text(make_result(*numbers).text())
    locate_result_file(Path(), "scenes").write_text(make_result("41.0", "51.0").text())


def test_a_run_is_shown_beside_the_recorded_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main() == 2
    assert "run make repro first" in capsys.readouterr().err
    write_run()
    assert format_comparison(Path()) == ""
    record_starts()
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "**This run (recorded: mean ± standard deviation of 3 starts)**" in lines
    assert [line.split() for line in lines if "±1.0" in line] == [
        ["|", "MLE", "|", "41.0", "(41.0±1.0)", "|"],
        ["|", "PSST-Multinomial", "|", "42.0", "(51.0±1.0)", "|"],
        ["|", "PSST-Multinomial", "−", "MLE", "|", "+1.0", "(+10.0±1.0)", "|"],
    ]
    outside, count, recorded, difference, difference_count = [line for line in lines if line.startswith("- ")]
    assert outside.startswith("- PSST-Multinomial, R@1 (hard) judge: 42.0 is outside 46.0 to 56.0")
    expected = "is {}, since an interval covers 95 % of new starts."
    assert count == "- Outliers: 1 of 2 compared numbers; the expected number " + expected.format("0.1")
    assert difference_count == "- Outliers: 1 of 1 compared differences; the expected number " + expected.format("0.1")
    assert recorded == "- Recorded: the profile scenes, results/scenes.json."
    assert "**Differences from MLE in this run (recorded: mean ± standard deviation of 3 starts)**" in lines
    assert difference.startswith("- PSST-Multinomial − MLE, R@1 (hard) judge: +1.0 is outside +5.0 to +15.0")
    tables = {RESULTS: PrintedTable(columns=["Method"], rows=[])}
    another = make_result("41.0", "51.0").model_copy(update={"tables": tables})
    locate_result_file(Path(), "scenes@start2").write_text(another.text())
    assert main() == 0, "the run itself is complete"
    lines = capsys.readouterr().out.splitlines()
    reason = "the recorded starts differ in methods or columns: record them again"
    assert f"This run is not compared with recorded ones: {reason}" in lines
    assert lines[-1].startswith("The report: data/report/report.html")


def test_tables_that_share_no_number_or_are_damaged_are_not_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run()
    record_starts()
    table = Path("data/report/table.md")
    text = table.read_text()
    table.write_text(text.replace("MLE", "own").replace("PSST-Multinomial", "other"))
    assert format_comparison(Path()) == ""
    table.write_text(text.replace("| 41.0 |", "| 41.0 | 3 |"))
    expected = "data/report/table.md is damaged (Value error, row 1 has 3 cells, where there are 2 columns)"
    assert expected in format_comparison(Path())


def test_each_file_is_read_once_and_no_slow_package_is_imported(tmp_path, monkeypatch):
    """This command takes most of the time of a `make repro` without changed stages."""
    monkeypatch.chdir(tmp_path)
    write_run()
    record_starts()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROBE]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert any("±1.0" in line for line in printed)
    observed = json.loads(printed[-1])
    assert {"profiles/scenes.yaml", "results/scenes@start3.json"} <= observed["read"].keys()
    assert set(observed["read"].values()) == {1}
    assert not {"torch", "scipy.stats", "matplotlib", "pandas"} & set(observed["modules"])


def test_the_summary_of_few_photos_is_printed_in_place_of_the_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "profiles", "profiles")
    Path("params.yaml").write_text(compose_profile_text("folder"))
    Path("data/report").mkdir(parents=True)
    Path("data/report/table.md").write_text("**Results at the chosen λ**\n")
    Path("data/report/photos.txt").write_text("Best captions\n")
    assert main() == 0
    output = capsys.readouterr().out
    assert output.startswith("Best captions\n")
    assert "Results at" not in output
    assert "all tables: data/report/tables.md" in output
