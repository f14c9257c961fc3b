"""A result file of a run has its printed tables, its figures, its machine and its commit."""

import subprocess
from dataclasses import replace

import pytest
from printing import begin_table
from run_record import write_run_record

from pipeline.config.overlays import compose_profile_text
from pipeline.errors import UserError
from pipeline.report import documents
from pipeline.report.number_files import format_markdown
from pipeline.report.recording import COMMANDS, iterate_tables, write_record
from pipeline.report.result_file import PrintedTable, read_result
from pipeline.report.tables import Table, TableColumn
from pipeline.runtime.files import compute_sha256
from pipeline.workflow import record_results

TABLE = Table(
    "results",
    "Results at the chosen λ, 5 images",
    [TableColumn("Method", text=True), TableColumn("R@10", "own"), TableColumn("CIDEr")],
    [["a|b", "7.5±0.1", "–"], ["luo", "10.0", "0.830"]],
    ["A note.", "Protocol: of | some | kind"],
)
PRINTED = PrintedTable(
    columns=["Method", "own R@10", "CIDEr"], rows=[["a|b", "7.5±0.1", "–"], ["Luo et al.", "10.0", "0.830"]]
)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = tmp_path / "data" / "report"
    for folder in (report, tmp_path / "profiles", tmp_path / "docs", tmp_path / "results"):
        folder.mkdir(parents=True)
    (report / "tables.md").write_text(format_markdown([TABLE], "λ is chosen."), encoding="utf-8")
    (report / "curve.csv").write_text("method,seed\nluo,2\nmle,\nluo,1\nluo,2\n")
    (report / "curve.png").write_bytes(b"a curve")
    (tmp_path / "profiles" / "base.yaml").write_text("seed: 2\n")
    (tmp_path / "profiles" / "small.yaml").write_text("seed: 1\n")
    (tmp_path / "params.yaml").write_text("seed: 1\n")
    (tmp_path / "README.md").write_text("<!-- results: small | figure: curve -->\n![A curve](…)\n<!-- end -->\n")
    for git in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a run"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *git], cwd=tmp_path, check=True)
    return tmp_path


def test_tables_of_markdown_equal_the_printed_ones():
    assert dict(iterate_tables(format_markdown([TABLE, TABLE]))) == {"Results at the chosen λ, 5 images": PRINTED}


def test_a_profiles_tables_figures_seeds_commit_and_command_are_recorded(root, capsys):
    assert record_results.main(["small"]) == 0
    assert capsys.readouterr().out == "results/small.json\n"
    found = read_result(root, "small")
    assert found.tables == {"Results at the chosen λ, 5 images": PRINTED}
    assert found.seeds == [1, 2]
    assert found.command == "make repro PROFILE=small"
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True).stdout
    assert found.commit == head.strip()
    assert "cores, " in found.machine
    assert "PyTorch 2." in found.machine
    assert found.figures["curve"].file == "docs/small_curve.png"
    assert found.figures["curve"].sha256 == compute_sha256(root / "data" / "report" / "curve.png")
    assert documents.update_documents([]) == 0
    assert (root / "README.md").read_text().splitlines()[1] == "![A curve](docs/small_curve.png)"


def test_the_time_of_make_test_is_recorded(root):
    write_run_record(root / "data/tests/tests.md", "make test", 3456, 401.4, 2)
    assert record_results.main(["tests"]) == 0
    found = read_result(root, "tests")
    assert found.command == "make test"
    assert found.tables["Time of the tests"] == PrintedTable(
        columns=["command", "tests", "minutes", "processes"], rows=[["make test", "3,456", "6.7", "2"]]
    )


def test_changed_code_marks_the_commit_and_the_command_omits_the_machine(root):
    (root / "profiles" / "small.yaml").write_text("seed: 2\n")
    (root / "params.yaml").write_text("seed: 2\n")
    assert record_results.main(["small@xeon"]) == 0
    assert read_result(root, "small@xeon").command == "make repro PROFILE=small"
    assert read_result(root, "small@xeon").commit.endswith("-dirty")


@pytest.mark.parametrize("path", ["pipeline/methods/new.py", "saywhich/changed.py"])
def test_code_that_is_in_no_commit_marks_the_commit(root, path):
    (root / "pipeline" / "__pycache__").mkdir(parents=True)
    (root / ".gitignore").write_text("__pycache__/\n")
    (root / "pipeline" / "__pycache__" / "a.pyc").touch()
    (root / "notes.txt").touch()
    assert record_results.main(["small"]) == 0
    assert not read_result(root, "small").commit.endswith("-dirty")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).touch()
    assert record_results.main(["small"]) == 0
    assert read_result(root, "small").commit.endswith("-dirty")


def test_without_a_commit_nothing_is_recorded(root, capsys, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
    (root / ".git").rename(root / "git")
    assert record_results.main(["small"]) == 2
    assert "is not a git repository with a commit: expected the commit of the run" in capsys.readouterr().err
    assert not (root / "results" / "small.json").exists()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("| a | b |\n| --- | --- |\n| 1 |", "row 1 has 1 cells, where there are 2 columns"),
        ("| a | a |\n| --- | --- |\n| 1 | 2 |", "two columns have the same name"),
    ],
)
def test_a_damaged_table_is_reported_in_one_line(root, capsys, table, problem):
    (root / "data" / "report" / "tables.md").write_text(f"**A table**\n\n{table}\n")
    assert record_results.main(["small"]) == 2
    assert capsys.readouterr().err == (
        f"data/report: a table is damaged (Value error, {problem}); make repro PROFILE=small writes it again\n"
    )


def test_two_tables_of_one_title_are_refused(root, capsys):
    """Tables at values of report.cider_levels that agree to three decimal places have the same title."""
    other = replace(TABLE, rows=TABLE.rows[:1])
    (root / "data" / "report" / "tables.md").write_text(format_markdown([TABLE, other, TABLE], ""), encoding="utf-8")
    assert record_results.main(["small"]) == 2
    error = capsys.readouterr().err
    assert "two tables have the title 'Results at the chosen λ, 5 images'; rename one, or give values of" in error
    assert not (root / "results" / "small.json").exists()


def test_a_figure_recorded_again_keeps_its_path(root):
    assert record_results.main(["small"]) == 0
    path = root / "results" / "small.json"
    path.write_text(path.read_text().replace("small_curve.png", "recall.png"))
    (root / "data" / "report" / "curve.png").write_bytes(b"a new curve")
    assert record_results.main(["small"]) == 0
    assert (root / "docs" / "recall.png").read_bytes() == b"a new curve"


def test_printed_tables_of_benchmarks_are_recorded(root, capsys):
    (root / "data" / "benchmarks").mkdir()
    row = begin_table("Speed", "by", "images/s", "ratio", first=2)
    row("ours", f"{1234.5:,.0f}", "2.0")
    row("a longer peer", 617, "–")
    printed = f"benchmarks/speed.py\none core\n{capsys.readouterr().out}\nsame answers\n"
    (root / "data" / "benchmarks" / "speed.md").write_text(printed, encoding="utf-8")
    assert record_results.main(["benchmarks@slow"]) == 0
    found = read_result(root, "benchmarks@slow")
    rows = [["ours", "1,234", "2.0"], ["a longer peer", "617", "–"]]
    assert found.tables == {"Speed": PrintedTable(columns=["by", "images/s", "ratio"], rows=rows)}
    assert (found.command, found.seeds) == ("python benchmarks/speed.py", [])
    (root / "data" / "benchmarks" / "size.md").write_text(printed.replace("Speed", "Size"), encoding="utf-8")
    assert record_results.main(["benchmarks@slow"]) == 0
    assert read_result(root, "benchmarks@slow").command == "make bench"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("large", f"PROFILE=large: no such profile; allowed: small; other names are {', '.join(COMMANDS)}"),
        ("benchmarks", "data/benchmarks has no tables; make bench writes them"),
        (
            "small",
            "params.yaml differs from the profile small, so data/report belongs to another run; run make repro "
            "PROFILE=small first",
        ),
    ],
)
def test_a_profile_that_was_not_run_is_not_recorded(root, capsys, name, message):
    (root / "params.yaml").write_text("seed: 3\n")
    assert record_results.main([name]) == 2
    assert capsys.readouterr().err == message + "\n"
    assert not (root / "results" / f"{name}.json").exists()


def test_a_figure_with_photos_is_not_published(root, capsys):
    (root / "data/report/hacked.png").write_bytes(b"photos")
    (root / "README.md").write_text("<!-- results: small | figure: hacked -->\n![Photos](…)\n<!-- end -->\n")
    assert record_results.main(["small"]) == 2
    assert capsys.readouterr().err == (
        "a document shows figure hacked of small: expected one without photos; remove it\n"
    )
    assert not (root / "docs/small_hacked.png").exists()
    for path in ("params.yaml", "profiles/small.yaml"):
        (root / path).write_text("seed: 1\ndraw: {scenes: {images: 5}}\n")
    (root / "profiles/base.yaml").write_text("seed: 2\ndraw: {}\n")
    assert record_results.main(["small"]) == 0
    assert (root / "docs/small_hacked.png").read_bytes() == b"photos"


def test_a_missing_figure_is_reported(root):
    (root / "data" / "report" / "curve.png").unlink()
    with pytest.raises(UserError, match=r"curve\.png is missing; a document shows it as docs/small_curve\.png: run"):
        write_record(root, "small", ["curve"], compose_profile_text)


def test_no_figure_is_copied_where_another_is_missing(root):
    with pytest.raises(UserError, match=r"drift\.png is missing; a document shows it as docs/small_drift\.png"):
        write_record(root, "small", ["curve", "drift"], compose_profile_text)
    assert not list((root / "docs").iterdir())


def test_a_start_is_recorded_by_its_seed_and_summarised_with_the_others(root, capsys):
    for start in (2, 1):
        (root / "params.yaml").write_text(f"seed: {start}\n")
        assert record_results.main([f"small@start{start}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *("results/small@start2.json", "results/small.json", "results/small@start1.json", "results/small.json")
    ]
    assert read_result(root, "small@start2").command == "make repro PROFILE=small START=2"
    assert read_result(root, "small").seeds == [1, 2]
    assert read_result(root, "small").figures["curve"].file == "docs/small_curve.png"
    assert record_results.main(["small@start2"]) == 2
    assert "params.yaml differs from the profile small with start 2" in capsys.readouterr().err
