"""The output of `make repro`: the table, and beside it the results recorded over starts."""

import shutil
from pathlib import Path

from pipeline.config.overlays import profile_text
from pipeline.report.result_file import PrintedTable, ResultFile, path_of
from pipeline.report.starts import RESULTS
from pipeline.workflow.show_results import comparison_text, main

ROOT = Path(__file__).parents[3]


def result(*judges: str) -> ResultFile:
    rows = [["MLE", judges[0]], ["PSST-Multinomial", judges[1]]]
    table = PrintedTable(columns=["Method", "R@1 (hard) judge"], rows=rows)
    return ResultFile(command="c", commit="a", date="d", machine="m", seeds=[1], tables={RESULTS: table})


def test_a_run_is_shown_beside_the_recorded_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main() == 2
    assert "run make repro first" in capsys.readouterr().err
    shutil.copytree(ROOT / "profiles", "profiles")
    Path("params.yaml").write_text(profile_text("scenes"))
    for folder in ("results", "data/report"):
        Path(folder).mkdir(parents=True)
    Path("data/report/table.md").write_text(
        f"**{RESULTS}**\n\n| Method | R@1 (hard) judge |\n| --- | --: |\n| MLE | 41.0 |\n| PSST-Multinomial | 42.0 |\n"
    )
    assert comparison_text(Path()) == ""
    for start, numbers in {1: ("40.0", "50.0"), 2: ("42.0", "51.0"), 3: ("41.0", "52.0")}.items():
        path_of(Path(), f"scenes@start{start}").write_text(result(*numbers).text())
    path_of(Path(), "scenes").write_text(result("41.0", "51.0").text())
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert "**This run (recorded: mean ± standard deviation of 3 starts)**" in lines
    assert [line.split() for line in lines if "±1.0" in line] == [
        ["|", "MLE", "|", "41.0", "(41.0±1.0)", "|"],
        ["|", "PSST-Multinomial", "|", "42.0", "(51.0±1.0)", "|"],
    ]
    outside, recorded = [line for line in lines if line.startswith("- ")]
    assert outside.startswith("- PSST-Multinomial, R@1 (hard) judge: 42.0 is outside 46.0 to 56.0")
    assert recorded == "- Recorded: the profile scenes, results/scenes.json."
    another = result("41.0", "51.0").model_copy(update={"tables": {RESULTS: PrintedTable(columns=["Method"], rows=[])}})
    path_of(Path(), "scenes@start2").write_text(another.text())
    assert main() == 0, "the run itself is complete"
    lines = capsys.readouterr().out.splitlines()
    why = "the recorded starts differ in methods or columns: record them again"
    assert f"This run is not compared with recorded ones: {why}" in lines
    assert lines[-1].startswith("The report: data/report/report.html")


def test_of_few_photos_the_summary_is_printed_in_place_of_the_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "profiles", "profiles")
    Path("params.yaml").write_text(profile_text("folder"))
    Path("data/report").mkdir(parents=True)
    Path("data/report/table.md").write_text("**Results at the chosen λ**\n")
    Path("data/report/photos.txt").write_text("Best captions\n")
    assert main() == 0
    output = capsys.readouterr().out
    assert output.startswith("Best captions\n")
    assert "Results at" not in output
    assert "all tables: data/report/tables.md" in output
