"""Tables and figures of the documents: writes them from results/ between their markers, or checks them.

    python -m pipeline.report.documents [--check]

A block of a document, at the repository's root or below docs/, is the text between two lines, `<!-- results: … -->` and
`<!-- end -->`. The first line states what to show, with bars between its parts:

    <!-- results: scenes | Results at the chosen λ -->                             a table, by the beginning of its name
    <!-- results: scenes | Results | columns: Method; CIDEr | rows: mle; luo -->   some columns, some rows
    <!-- results: scenes | Budget | else: not recorded -->                         this text if it has no such table
    <!-- results: scenes | figure: curve -->                                       a figure; its description is kept
    <!-- results: scenes | tables -->                                              all tables as CSV, linked
    <!-- results: scenes | provenance -->                                          its command, commit, date and machine
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pipeline.errors import UserError
from pipeline.report.csv_tables import csv_files, write_csv_files
from pipeline.report.method_names import published_name
from pipeline.report.result_file import PrintedFigure, PrintedTable, ResultFile, path_of, read_result
from pipeline.report.tables import markdown_table
from pipeline.runtime.command import run_command
from pipeline.runtime.files import sha256, write_atomically

BEGIN, END = r"^<!-- *results: *(?P<asked>\S.*?) *-->[ \t\r]*(?:\n|\Z)", r"^<!-- *end *-->[ \t\r]*(?:\n|\Z)"
MARKER = re.compile(f"{BEGIN}|{END}", re.MULTILINE)
NOW = r"(?P<now>(?:(?!<!-- *(?:results:|end *-->)).*\n)*)"
BLOCK = re.compile(f"(?P<begin>{BEGIN}){NOW}(?P<end>{END})", re.MULTILINE)
NUMBER = re.compile(r"[≥≤]?[-+−±<~]?[.\d]|[–✓]?$")  # every cell of a numeric column begins like this
WIDEST = 60  # characters; a table with longer cells is not padded


def update_documents(arguments: Sequence[str] | None = None) -> int:
    """Write or check the documents, and return the exit status: 0 if all blocks are right, 2 if not.

    Each wrong block is reported in one line on stderr.
    """
    parser = argparse.ArgumentParser(prog="python -m pipeline.report.documents", allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args(arguments)

    def work() -> int:
        complaints = write_documents(Path(), check=options.check)
        print("\n".join(complaints), end="\n" if complaints else "", file=sys.stderr)
        return 2 if complaints else 0

    return run_command("documents", work)


def write_documents(root: Path, check: bool) -> list[str]:
    """Write every document of `root`, or compare it with `check`; return a line for each wrong block.

    Nothing is written if any block is wrong. Raises UserError where a marker has no partner.
    """
    complaints: list[str] = []
    tables: dict[Path, str] = {}
    before = dict(documents(root))
    updated = partial(_updated, root, complaints, tables, check)
    after = {path: BLOCK.sub(partial(updated, path), text) for path, text in before.items()}
    if complaints and not check:
        return complaints
    for path, text in after.items():
        if text != before[path] and not check:
            write_atomically(path, text)
    return complaints + write_csv_files(tables, check)


def documents(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the Markdown files of the repository's root and of docs/, with their exact text.

    Raises UserError where a marker has no partner.
    """
    for path in [*sorted(root.glob("*.md")), *sorted(root.glob("docs/**/*.md"))]:
        text = path.read_bytes().decode("utf-8")
        rest = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
        if marker := MARKER.search(rest):
            where = f"{path.relative_to(root).as_posix()}, line {_line(marker)}: "
            if marker["asked"] is None:
                raise UserError(f"{where}<!-- end --> ends no block")
            raise UserError(f"{where}the block “{marker['asked']}” has no <!-- end -->")
        yield path, text


def figures_of(root: Path, name: str) -> list[str]:
    """Return the names of the figures of the result file `name` that documents show."""
    asked = [_asked(block) for _, text in documents(root) for block in BLOCK.finditer(text)]
    return sorted({value for file, parts in asked if file == name for key, value in parts if key == "figure"})


def _line(match: re.Match[str]) -> int:
    return match.string.count("\n", 0, match.start()) + 1


def _asked(block: re.Match[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return a block's result file and its options, pairs of a word and the text after its colon."""
    name, *parts = (part.strip() for part in block["asked"].split("|"))
    pairs = (part.partition(":") for part in parts)
    return name, [(key.strip(), value.strip()) for key, _, value in pairs]


def _updated(
    root: Path, complaints: list[str], tables: dict[Path, str], check: bool, document: Path, block: re.Match[str]
) -> str:
    """Return the block with its content replaced; errors are added to `complaints`, CSV files to `tables`."""
    name, parts = _asked(block)
    here = f"{document.relative_to(root).as_posix()}, line {_line(block)}: "
    try:
        shown = _shown(root, name, parts or [("", "")], block["now"], document.parent, tables)
    except UserError as error:
        complaints.append(here + str(error))
        return block[0]
    if check and shown != block["now"]:
        what = " | ".join(block["asked"].split(" | ")[:2])
        complaints.append(f"{here}“{what}” is not what {path_of(Path(), name)} holds: run make documents")
    return block["begin"] + shown + block["end"]


def _shown(root: Path, name: str, parts: list[tuple[str, str]], now: str, folder: Path, tables: dict[Path, str]) -> str:
    """Return the text that belongs between a block's markers, in a document of `folder`; add CSV files to `tables`.

    Raises UserError where the result file lacks the requested content.
    """
    result = read_result(root, name)
    (key, value), *options = parts
    try:
        if parts == [("provenance", "")]:
            return _provenance(result) + "\n"
        if parts == [("tables", "")]:
            files = csv_files(root, name, result)
            tables.update(files.values())
            links = (f"[{title}]({_link(path, folder)})" for title, (path, _) in files.items())
            return f"All tables of this run (CSV): {', '.join(links)}.\n"
        if key == "figure" and not options:
            description = re.match(r"!\[(.*?)\]\(", now)
            picture = root / _picture(root, result.figure(value))
            return f"![{description[1] if description else value}]({_link(picture, folder)})\n"
        asked, chosen = f"{key}: {value}" if value else key, dict(options)
        otherwise = chosen.pop("else", None)
        if otherwise and not any(published_name(name).startswith(published_name(asked)) for name in result.tables):
            return f"{otherwise}\n"
        table = _part(result.table(asked), chosen)
    except UserError as error:
        raise UserError(f"{path_of(Path(), name)} {error}") from None
    return _text(table)


def _link(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _text(table: PrintedTable) -> str:
    long = any(len(cell) > WIDEST for line in (table.columns, *table.rows) for cell in line)
    right = [n > 0 and all(NUMBER.match(row[n]) for row in table.rows) for n in range(len(table.columns))]
    return markdown_table(table.columns, table.rows, right, padded=not long) + "\n"


def _provenance(result: ResultFile) -> str:
    seeds = ", ".join(map(str, result.seeds))
    with_seeds = f", seed{'s' if len(result.seeds) > 1 else ''} {seeds}" if seeds else ""
    return f"Printed by `{result.command}` at commit {result.commit}, {result.date}{with_seeds}; {result.machine}."


def _picture(root: Path, figure: PrintedFigure) -> str:
    """Return the figure's path; raises UserError if the file there differs from the recorded figure."""
    path = root / figure.file
    if not path.is_file() or sha256(path) != figure.sha256:
        raise UserError(f"has another figure than {figure.file}: restore that file, or run make record again")
    return figure.file


def _part(table: PrintedTable, options: dict[str, str]) -> PrintedTable:
    """Return the columns and rows that `options` names, in that order, with methods' published names.

    Raises UserError for another option, and for an unknown column or row.
    """
    columns, rows = _names(options.pop("columns", "")), _names(options.pop("rows", ""))
    if options:
        raise UserError(f"is asked for “{next(iter(options))}”; a table has columns: and rows:")
    table = PrintedTable(
        columns=[published_name(name) for name in table.columns],
        rows=[[published_name(row[0]), *row[1:]] for row in table.rows],
    )
    known = {row[0] for row in table.rows}
    for name in [*(set(columns) - {*table.columns}), *(set(rows) - known)]:
        raise UserError(f"has no “{name}” in that table; there are: {'; '.join([*table.columns, *sorted(known)])}")
    shown = [row for name in rows for row in table.rows if row[0] == name] if rows else table.rows
    at = [table.columns.index(name) for name in columns or table.columns]
    return PrintedTable(columns=[table.columns[n] for n in at], rows=[[row[n] for n in at] for row in shown])


def _names(given: str) -> list[str]:
    """Return the names between semicolons as documents show them; a method's name in params.yaml is translated."""
    return [published_name(name.strip()) for name in given.split(";") if name.strip()]


if __name__ == "__main__":
    sys.exit(update_documents())
