"""Blocks of documents equal their result files, and the rest of a document is unchanged."""

import json
import os
import re
from pathlib import Path

import pytest

from pipeline.report import documents
from pipeline.report.result_file import FOLDER, PrintedFigure, PrintedTable, ResultFile, locate_result_file, read_result

ROOT = Path(__file__).parents[3]
PICTURE = b"a picture"
DOCUMENT = """# Found\r
A line with CRLF, and trailing spaces   \r
<!-- results: small | Recall -->
| old |
<!-- end -->
| a | table | by hand |

<!-- results: small | figure: curve -->
![Recall along *λ*](docs/other.png)
<!-- end -->
no newline at the end"""
CURRENT_DOCUMENT = """# Found\r
A line with CRLF, and trailing spaces   \r
<!-- results: small | Recall -->
| Method     |  R@10 | note   |
| ---------- | ----: | ------ |
| a\\|b       |   7.5 | 1 seed |
| Luo et al. | −10.1 | none   |
<!-- end -->
| a | table | by hand |

<!-- results: small | figure: curve -->
![Recall along *λ*](docs/curve.png)
<!-- end -->
no newline at the end"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / FOLDER).mkdir()
    (tmp_path / "docs" / "curve.png").write_bytes(PICTURE)
    digest = "92b2fa58028958317e408bd84ecfa70f5ee35b121991dbc232c49d166353708b"
    tables = {
        "Recall at 10": PrintedTable(
            columns=["Method", "R@10", "note"], rows=[["a|b", "7.5", "1 seed"], ["luo", "−10.1", "none"]]
        ),
        "Words": PrintedTable(columns=["Method", "n"], rows=[["luo", "3"]]),
        "Words, all": PrintedTable(columns=["Method", "n"], rows=[["luo", "4"]]),
        "Work": PrintedTable(columns=["Method", "n"], rows=[["luo", "5"]]),
    }
    result = ResultFile(
        command="make repro PROFILE=small",
        commit="abc1234",
        date="2026-01-02",
        machine="one core",
        seeds=[1, 2],
        tables=tables,
        figures={"curve": PrintedFigure(file="docs/curve.png", sha256=digest)},
    )
    locate_result_file(tmp_path, "small").write_text(result.text(), encoding="utf-8")
    return tmp_path


def write_readme(root, text):
    (root / "README.md").write_bytes(text.encode())


def update(capsys, *arguments):
    """Update the documents; return the exit status and the lines on standard error."""
    status = documents.update_documents([*arguments])
    return status, capsys.readouterr().err.splitlines()


def render_block(root, request):
    """Return the lines that an update writes between the markers of `request`."""
    write_readme(root, f"<!-- results: {request} -->\n<!-- end -->\n")
    assert documents.update_documents([]) == 0
    return (root / "README.md").read_text().splitlines()[1:-1]


def test_blocks_are_written_between_their_markers_and_the_rest_is_unchanged(root, capsys):
    write_readme(root, DOCUMENT)
    assert update(capsys) == (0, [])
    assert (root / "README.md").read_bytes().decode() == CURRENT_DOCUMENT
    os.utime(root / "README.md", (0, 0))
    assert update(capsys) == (0, [])
    assert (root / "README.md").stat().st_mtime == 0, "a current document is not written again"
    assert update(capsys, "--check") == (0, [])


def test_a_number_changed_in_a_document_is_reported_and_corrected(root, capsys):
    write_readme(root, CURRENT_DOCUMENT.replace("7.5", "7.6"))
    assert update(capsys, "--check") == (
        2,
        ["README.md, line 3: “small | Recall” differs from results/small.json: run make documents"],
    )
    assert "7.6" in (root / "README.md").read_text(), "a check writes nothing"
    assert update(capsys) == (0, [])
    assert (root / "README.md").read_bytes().decode() == CURRENT_DOCUMENT


def test_a_number_changed_in_the_result_file_is_reported_for_every_block_that_shows_it(root, capsys):
    write_readme(root, CURRENT_DOCUMENT)
    (root / "RESULTS.md").write_bytes(CURRENT_DOCUMENT.encode())
    path = locate_result_file(root, "small")
    path.write_text(path.read_text().replace("−10.1", "−10.2"))
    status, lines = update(capsys, "--check")
    assert status == 2
    assert [line.split(",")[0] for line in lines] == ["README.md", "RESULTS.md"]


def test_a_replaced_figure_is_reported_and_not_accepted(root, capsys):
    write_readme(root, CURRENT_DOCUMENT)
    (root / "docs" / "curve.png").write_bytes(b"another")
    for arguments in ([], ["--check"]):
        status, (line,) = update(capsys, *arguments)
        assert status == 2
        expected = "results/small.json records the figure docs/curve.png, which is missing or has changed: restore it"
        assert line.startswith(f"README.md, line 11: {expected}")


def test_columns_are_in_the_requested_order_and_only_requested_rows_are_shown(root):
    assert render_block(root, "small | Recall | columns: note; Method | rows: luo") == [
        "| note | Method     |",
        "| ---- | ---------- |",
        "| none | Luo et al. |",
    ]
    assert [line[2:5] for line in render_block(root, "small | Recall | columns: R@10; Method")[2:]] == ["7.5", "−10"]


def test_tables_columns_and_rows_are_named_by_key_or_by_title(root):
    path = locate_result_file(root, "small")
    for recorded in ("frozen_luo, all images", "Luo et al. (frozen), all images"):
        found = json.loads(path.read_text())
        found["tables"] = {recorded: {"columns": ["Method", "mle"], "rows": [["luo ρ 0.5", "luo"]]}}
        path.write_text(json.dumps(found))
        for request in (
            "frozen_luo | columns: Method; mle | rows: luo ρ 0.5",
            "Luo et al. (frozen) | rows: Luo et al. ρ 0.5",
        ):
            head, _, row = render_block(root, f"small | {request}")
            assert [cell.strip() for cell in (head + row).split("|")[1:-1] if cell] == [
                "Method", "MLE", "Luo et al. ρ 0.5", "luo",
            ], "only the first cell of a row is a name"  # fmt: skip


def test_a_figures_description_is_kept_below_an_empty_line_and_over_two_lines(root):
    block = "<!-- results: small | figure: curve -->\n{}<!-- end -->\n"
    write_readme(root, block.format("\n![Recall\nalong λ](docs/other.png)\n\n"))
    assert documents.update_documents([]) == 0
    assert (root / "README.md").read_text() == block.format("![Recall\nalong λ](docs/curve.png)\n")


def test_a_document_in_another_encoding_is_reported_in_one_line(root, capsys):
    (root / "docs" / "old.md").write_bytes("Grün".encode("latin-1"))
    status, (line,) = update(capsys)
    assert status == 2
    assert line.startswith("docs/old.md: expected UTF-8, found another encoding (")


def test_the_first_unknown_column_is_reported(root, capsys):
    unknown = [f"unknown {n}" for n in range(20)]
    write_readme(root, f"<!-- results: small | Words | columns: {'; '.join(unknown)} -->\n<!-- end -->\n")
    _, (line,) = update(capsys)
    assert "has no “unknown 0” in that table" in line


def test_documents_below_docs_are_updated_with_relative_links(root, capsys):
    text = "<!-- results: small | figure: curve -->\n<!-- end -->\n<!-- results: small | Words -->\n<!-- end -->\n"
    page = root / "docs" / "results" / "small.md"
    page.parent.mkdir()
    page.write_text(text)
    assert update(capsys, "--check")[1][0].startswith(
        "docs/results/small.md, line 1: “small | figure: curve” differs from"
    )
    assert update(capsys) == (0, [])
    picture, row = page.read_text().splitlines()[1], page.read_text().splitlines()[6]
    assert (picture, row) == ("![curve](../curve.png)", "| Luo et al. |   3 |")
    assert documents.list_figures(root, "small") == ["curve"]


def test_a_table_with_a_long_cell_is_not_padded(root):
    path = locate_result_file(root, "small")
    path.write_text(path.read_text().replace("none", "n" * 61))
    assert render_block(root, "small | Recall")[1:3] == ["| --- | --: | --- |", "| a\\|b | 7.5 | 1 seed |"]


def test_all_tables_are_csv_files_that_a_line_links(root, capsys):
    page = root / "docs" / "results" / "small.md"
    page.parent.mkdir()
    page.write_text("<!-- results: small | tables -->\n<!-- end -->\n")
    assert update(capsys) == (0, [])
    links = re.findall(r"\[(.*?)\]\(\.\./\.\./results/small/(.*?)\)", page.read_text())
    assert links == [
        ("Recall at 10", "recall_at_10.csv"),
        ("Words", "words.csv"),
        ("Words, all", "words_all.csv"),
        ("Work", "work.csv"),
    ]
    folder = root / FOLDER / "small"
    assert (folder / "recall_at_10.csv").read_text() == "Method,R@10,note\na|b,7.5,1 seed\nLuo et al.,−10.1,none\n"
    assert update(capsys, "--check") == (0, [])
    (folder / "words.csv").write_text("Method,n\nLuo et al.,4\n")
    (folder / "gone.csv").write_text("Method\n")
    (folder / "work.csv").unlink()
    wrong = [f"results/small/{name}.csv is not current: run make documents" for name in ("gone", "words", "work")]
    assert update(capsys, "--check") == (2, wrong)
    assert update(capsys) == (0, [])
    assert sorted(path.name for path in folder.iterdir()) == sorted(name for _, name in links)
    assert update(capsys, "--check") == (0, [])


@pytest.mark.parametrize(
    ("old", "new", "tables"),
    [("Words, all", "Words: all", "“Words” and “Words”, both with the file words.csv"),
     ('"Work"', '"Words and all"', None),
     ('"Work"', '"Words / all"', "“Words, all” and “Words / all”, both with the file words_all.csv")],
)  # fmt: skip
def test_two_tables_with_one_csv_file_are_reported_in_one_line(root, capsys, old, new, tables):
    path = locate_result_file(root, "small")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    write_readme(root, "<!-- results: small | tables -->\n<!-- end -->\n")
    line = f"README.md, line 1: results/small.json has tables {tables}: rename one"
    assert update(capsys) == ((2, [line]) if tables else (0, []))


def test_provenance_is_one_line(root):
    line = "Printed by `make repro PROFILE=small` at commit abc1234, 2026-01-02, seeds 1, 2; one core."
    assert render_block(root, "small | provenance") == [line]


@pytest.mark.parametrize(
    ("request_text", "message"),
    [
        ("large | Recall", "results/large.json is missing; make record PROFILE=large writes it"),
        ("smal | Words", "results/smal.json is missing; did you mean small? make record PROFILE=smal writes it"),
        ("small | Speed", "results/small.json has no table “Speed”; there are: Recall at 10; Words; Words, all; Work"),
        ("small | Wor", "results/small.json has 3 tables that begin with “Wor”; name one of Words; Words, all; Work"),
        ("small | figure: rho", "results/small.json has no figure “rho”; there are: curve"),
        (
            "small | figure: curve | rows: mle",
            "results/small.json figure curve: expected no options, found rows; remove the option",
        ),
        ("small | Words | columns: λ", "results/small.json has no “λ” in that table; there are: Method; n; Luo et al."),
        (
            "small | Words | rows: sle",
            "results/small.json has no “sle” in that table; there are: Method; n; Luo et al.",
        ),
        (
            "small | Words | cells: n",
            "results/small.json cannot be shown with “cells”: a table takes columns:, rows: and else:",
        ),
        (
            "small",
            "results/small.json has 4 tables that begin with “”; name one of Recall at 10; Words; Words, all; Work",
        ),
    ],
)
def test_an_invalid_request_is_reported_in_one_line_and_nothing_is_written(root, capsys, request_text, message):
    text = f"{DOCUMENT}\n<!-- results: {request_text} -->\n<!-- end -->\n"
    write_readme(root, text)
    assert update(capsys) == (2, [f"README.md, line 12: {message}"])
    assert (root / "README.md").read_bytes().decode() == text


def test_a_text_replaces_a_table_that_was_not_recorded(root):
    assert render_block(root, "small | Budget | else: not recorded") == ["not recorded"]
    assert render_block(root, "small | Work | else: not recorded")[2] == "| Luo et al. |   5 |"


def test_a_request_of_a_whole_table_name_ignores_longer_names(root):
    assert render_block(root, "small | Words")[2] == "| Luo et al. |   3 |"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "<!-- results: small | Words -->\n",
            "README.md, line 1: the block “small | Words” has no <!-- end -->: add it",
        ),
        (
            "\n<!-- results: small | Words -->\n<!-- results: small | Work -->\n<!-- end -->\n",
            "README.md, line 2: the block “small | Words” has no <!-- end -->: add it",
        ),
        (
            "<!-- result: small | Words -->\n<!-- end -->\n",
            "README.md, line 2: <!-- end --> without a block: remove it",
        ),
    ],
)
def test_unpaired_markers_are_reported_in_one_line(root, capsys, text, message):
    write_readme(root, text)
    for arguments in ([], ["--check"]):
        assert update(capsys, *arguments) == (2, [message])
    assert (root / "README.md").read_text() == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("commit"), "commit: Field required"),
        (
            lambda found: found["tables"]["Words"]["rows"].append(["luo"]),
            "tables.Words: Value error, row 2 has 1 cells",
        ),
        (lambda found: found["tables"]["Words"].update(columns=["n", "n"]), "two columns have the same name"),
        (lambda found: found["tables"]["Words"].update(columns=[], rows=[[]]), "a table has no column"),
    ],
)
def test_a_broken_result_file_is_reported_in_one_line(root, capsys, change, message):
    path = locate_result_file(root, "small")
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    write_readme(root, "<!-- results: small | Words -->\n<!-- end -->\n")
    status, (line,) = update(capsys)
    assert status == 2
    assert line.startswith("README.md, line 1: results/small.json is not a result file: ")
    assert message in line


def test_a_result_file_has_a_line_for_each_row_and_is_read_back_unchanged(root):
    text = locate_result_file(root, "small").read_text()
    assert '        ["luo", "−10.1", "none"]\n' in text
    assert read_result(root, "small").text() == text


def test_the_documents_of_this_repository_are_current():
    assert documents.write_documents(ROOT, check=True) == []


PAGES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs" / "results").glob("*.md"))]


@pytest.mark.parametrize("name", ["RESULTS.md", "BENCHMARKS.md", *PAGES])
def test_documents_have_no_table_or_figure_without_a_marker(name):
    text, blocks = documents.BLOCK.subn("", dict(documents.find_documents(ROOT))[ROOT / name])
    assert blocks or name == "RESULTS.md"  # RESULTS.md has no table
    assert not re.search(r"^\||^!\[", text, re.MULTILINE)


def test_symbols_of_settings_are_words_in_the_names_of_csv_files(root, capsys):
    path = locate_result_file(root, "small")
    path.write_text(path.read_text().replace("Words, all", "R@1 (hard) at λ 1, ρ 0.5, τ 0.3"))
    write_readme(root, "<!-- results: small | tables -->\n<!-- end -->\n")
    assert update(capsys) == (0, [])
    assert (root / FOLDER / "small" / "r1_hard_at_lambda_1_rho_0.5_tau_0.3.csv").is_file()
