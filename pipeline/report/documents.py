"""Tables and figures of the documents, written from results/ between markers, or checked.

    python -m pipeline.report.documents [--check]

A block of a document, at the repository's root or below docs/, is the text between two lines, `<!-- results: … -->` and
`<!-- end -->`. The first line states the content, with bars between its parts:

    <!-- results: scenes | Results at the chosen λ -->                             a table, by the beginning of its name
    <!-- results: scenes | Results | columns: Method; CIDEr | rows: mle; luo -->   only these columns and rows
    <!-- results: scenes | Budget | else: not recorded -->                         this text if there is no such table
    <!-- results: scenes | figure: curve -->                                       a figure; the description is kept
    <!-- results: scenes | tables -->                                              links to all tables as CSV
    <!-- results: scenes | provenance -->                                          command, commit, date, seeds, machine
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pipeline.errors import UserError, summarise_error
from pipeline.report.csv_tables import format_csv_files, write_csv_files
from pipeline.report.method_names import replace_method_names
from pipeline.report.result_file import PrintedFigure, PrintedTable, ResultFile, locate_result_file, read_result
from pipeline.report.tables import format_markdown_table
from pipeline.runtime.command import run_command
from pipeline.runtime.files import compute_sha256, write_atomically

BEGIN, END = r"^<!-- *results: *(?P<request>\S.*?) *-->[ \t\r]*(?:\n|\Z)", r"^<!-- *end *-->[ \t\r]*(?:\n|\Z)"
MARKER = re.compile(f"{BEGIN}|{END}", re.MULTILINE)
CONTENT = r"(?P<content>(?:(?!<!-- *(?:results:|end *-->)).*\n)*)"
BLOCK = re.compile(f"(?P<begin>{BEGIN}){CONTENT}(?P<end>{END})", re.MULTILINE)
NUMBER = re.compile(r"[≥≤]?[-+−±<~]?[.\d]|[–✓]?$")  # every cell of a numeric column begins like this
MAX_PADDED = 60  # characters; a table with longer cells is not padded


def update_documents(arguments: Sequence[str] | None = None) -> int:
    """Write or check the documents and their CSV files, and return the exit status: 0 if all are right, 2 if not.

    Each wrong block or file is reported in one line on stderr.
    """
    parser = argparse.ArgumentParser(prog="python -m pipeline.report.documents", allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args(arguments)

    def run() -> int:
        errors = write_documents(Path(), check=options.check)
        print("\n".join(errors), end="\n" if errors else "", file=sys.stderr)
        return 2 if errors else 0

    return run_command("documents", run)


def write_documents(root: Path, check: bool) -> list[str]:
    """Write every document of `root` and the CSV files that documents link; return a line for each wrong block.

    With `check`, only compare, and also return a line for each wrong CSV file. Without `check`, a block is wrong only
    where its result file is missing, invalid or lacks the requested content; nothing is then written. Raises UserError
    as `find_documents` does.
    """
    errors: list[str] = []
    tables: dict[Path, str] = {}
    texts = dict(find_documents(root))
    update_block = partial(_update_block, root, errors, tables, check)
    new_texts = {path: BLOCK.sub(partial(update_block, path), text) for path, text in texts.items()}
    if errors and not check:
        return errors
    for path, text in new_texts.items():
        if text != texts[path] and not check:
            write_atomically(path, text)
    return errors + write_csv_files(tables, check)


def find_documents(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the Markdown files of the repository's root and of docs/, with their exact text.

    Raises UserError for a marker without its partner, and for a file that is not UTF-8.
    """
    for path in [*sorted(root.glob("*.md")), *sorted(root.glob("docs/**/*.md"))]:
        name = path.relative_to(root).as_posix()
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}: expected UTF-8, found another encoding ({summarise_error(error)}); save it as UTF-8"
            ) from None
        remaining_text = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
        if marker := MARKER.search(remaining_text):
            position = f"{name}, line {_find_line_number(marker)}: "
            if marker["request"] is None:
                raise UserError(f"{position}<!-- end --> without a block: remove it")
            raise UserError(f"{position}the block “{marker['request']}” has no <!-- end -->: add it")
        yield path, text


def list_figures(root: Path, name: str) -> list[str]:
    """Return the names of the figures of the result file `name` that documents show.

    Raises UserError as `find_documents` does.
    """
    requests = [_parse_request(block) for _, text in find_documents(root) for block in BLOCK.finditer(text)]
    return sorted({value for file, parts in requests if file == name for key, value in parts if key == "figure"})


def _find_line_number(match: re.Match[str]) -> int:
    return match.string.count("\n", 0, match.start()) + 1


def _parse_request(block: re.Match[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return a block's result file and its options, pairs of a word and the text after its colon."""
    name, *parts = (part.strip() for part in block["request"].split("|"))
    pairs = (part.partition(":") for part in parts)
    return name, [(key.strip(), value.strip()) for key, _, value in pairs]


def _update_block(
    root: Path, errors: list[str], tables: dict[Path, str], check: bool, document: Path, block: re.Match[str]
) -> str:
    """Return the block with its content replaced; messages are added to `errors`, CSV files to `tables`."""
    name, parts = _parse_request(block)
    position = f"{document.relative_to(root).as_posix()}, line {_find_line_number(block)}: "
    try:
        content = _build_content(root, name, parts or [("", "")], block["content"], document.parent, tables)
    except UserError as error:
        errors.append(position + str(error))
        return block[0]
    if check and content != block["content"]:
        request = " | ".join(block["request"].split(" | ")[:2])
        errors.append(f"{position}“{request}” differs from {locate_result_file(Path(), name)}: run make documents")
    return block["begin"] + content + block["end"]


def _build_content(
    root: Path, name: str, parts: list[tuple[str, str]], content: str, folder: Path, tables: dict[Path, str]
) -> str:
    """Return the text that belongs between a block's markers, in a document of `folder`; add CSV files to `tables`.

    Raises UserError where the result file is missing, invalid or lacks the requested content.
    """
    result = read_result(root, name)
    (key, value), *options = parts
    try:
        if parts == [("provenance", "")]:
            return _describe_provenance(result) + "\n"
        if parts == [("tables", "")]:
            files = format_csv_files(root, name, result)
            tables.update(files.values())
            links = (f"[{title}]({_make_link(path, folder)})" for title, (path, _) in files.items())
            return f"All tables of this run (CSV): {', '.join(links)}.\n"
        if key == "figure":
            if options:
                raise UserError(f"figure {value}: expected no options, found {options[0][0]}; remove the option")
            description = re.search(r"!\[(.*?)\]\(", content, re.DOTALL)
            picture = root / _find_picture(root, result.figure(value))
            return f"![{description[1] if description else value}]({_make_link(picture, folder)})\n"
        beginning, table_options = f"{key}: {value}" if value else key, dict(options)
        fallback = table_options.pop("else", None)
        if fallback and not any(
            replace_method_names(name).startswith(replace_method_names(beginning)) for name in result.tables
        ):
            return f"{fallback}\n"
        table = _select_cells(result.table(beginning), table_options)
    except UserError as error:
        raise UserError(f"{locate_result_file(Path(), name)} {error}") from None
    return _format_table(table)


def _make_link(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _format_table(table: PrintedTable) -> str:
    has_long_cells = any(len(cell) > MAX_PADDED for line in (table.columns, *table.rows) for cell in line)
    right_aligned = [n > 0 and all(NUMBER.match(row[n]) for row in table.rows) for n in range(len(table.columns))]
    return format_markdown_table(table.columns, table.rows, right_aligned, padded=not has_long_cells) + "\n"


def _describe_provenance(result: ResultFile) -> str:
    seeds = ", ".join(map(str, result.seeds))
    with_seeds = f", seed{'s' if len(result.seeds) > 1 else ''} {seeds}" if seeds else ""
    return f"Printed by `{result.command}` at commit {result.commit}, {result.date}{with_seeds}; {result.machine}."


def _find_picture(root: Path, figure: PrintedFigure) -> str:
    """Return the figure's path; raises UserError if the file is missing or differs from the recorded figure."""
    path = root / figure.file
    if not path.is_file() or compute_sha256(path) != figure.sha256:
        raise UserError(
            f"records the figure {figure.file}, which is missing or has changed: restore it, or run make record for "
            "this result file again"
        )
    return figure.file


def _select_cells(table: PrintedTable, options: dict[str, str]) -> PrintedTable:
    """Return the columns and rows that `options` names, in that order, with methods' published names.

    Raises UserError for another option, and for an unknown column or row.
    """
    columns, rows = _split_names(options.pop("columns", "")), _split_names(options.pop("rows", ""))
    if options:
        raise UserError(f"cannot be shown with “{next(iter(options))}”: a table takes columns:, rows: and else:")
    table = PrintedTable(
        columns=[replace_method_names(name) for name in table.columns],
        rows=[[replace_method_names(row[0]), *row[1:]] for row in table.rows],
    )
    row_names = {row[0] for row in table.rows}
    unknown = [name for name in columns if name not in table.columns] + [name for name in rows if name not in row_names]
    for name in unknown[:1]:
        raise UserError(f"has no “{name}” in that table; there are: {'; '.join([*table.columns, *sorted(row_names)])}")
    selected_rows = [row for name in rows for row in table.rows if row[0] == name] if rows else table.rows
    indices = [table.columns.index(name) for name in columns or table.columns]
    return PrintedTable(
        columns=[table.columns[n] for n in indices], rows=[[row[n] for n in indices] for row in selected_rows]
    )


def _split_names(names: str) -> list[str]:
    """Split a list of names at semicolons; a method's name in params.yaml becomes its published name."""
    return [replace_method_names(name.strip()) for name in names.split(";") if name.strip()]


if __name__ == "__main__":
    sys.exit(update_documents())
