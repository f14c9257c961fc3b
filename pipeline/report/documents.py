"""Writes the tables and figures of the documents, or checks them; they stand between markers and are those of results/.

    python -m pipeline.report.documents [--check]

A block of a document at the repository's root is what stands between two lines, `<!-- results: … -->` and
`<!-- end -->`. The first says what is there, with bars between its parts:

    <!-- results: scenes | Results at the chosen λ -->                             a table, by the beginning of its name
    <!-- results: scenes | Results | columns: Method; CIDEr | rows: mle; luo -->   some columns, some rows
    <!-- results: scenes | figure: curve -->                                       a figure; its description stays
    <!-- results: scenes | provenance -->                                          which command printed it, and where
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from pipeline.report.result_file import Drawn, Printed, ResultFile, path_of, read_result
from pipeline.runtime.files import sha256, write_atomically

MARKER = re.compile(r"^<!-- *(?:results: *(?P<asked>\S.*?)|end) *-->[ \t\r]*(?:\n|\Z)", re.MULTILINE)
NUMBER = re.compile(r"[-+−±<~]?[.\d]|[–✓]?$")  # how every cell of a column of numbers begins
WIDEST = 60  # characters; a table with longer cells is not set in line


@dataclass(frozen=True)
class Block:
    """What a document shows of a result file, and what stands there now; `start` and `end` are between the markers."""

    line: int
    asked: str
    start: int
    end: int
    now: str

    @property
    def name(self) -> str:
        """The result file's."""
        return self.asked.split("|")[0].strip()

    @property
    def parts(self) -> list[tuple[str, str]]:
        """What of it: pairs of a word and what follows its colon, if it has one."""
        pairs = (part.partition(":") for part in self.asked.split("|")[1:])
        return [(key.strip(), value.strip()) for key, _, value in pairs]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 all is written, or as it should be; 2 something is not, told in a line each."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.report.documents", allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args(arguments)
    try:
        complaints = update(Path(), check=options.check)
    except UserError as error:
        complaints = [str(error)]
    print("\n".join(complaints), end="\n" if complaints else "", file=sys.stderr)
    return 2 if complaints else 0


def update(root: Path, check: bool) -> list[str]:
    """Write every document below `root`, or with `check` compare it; a line for each block that is not as it should be.

    Nothing is written where a block cannot be.
    """
    complaints, changed = [], {}
    for path, text, blocks in documents(root):
        parts, at = [], 0
        for block in blocks:
            here = f"{path.name}, line {block.line}: "
            try:
                shown = show(root, block)
            except UserError as error:
                complaints.append(here + str(error))
                continue
            if check and shown != block.now:
                file = path_of(Path(), block.name)
                what = " | ".join(block.asked.split(" | ")[:2])
                complaints.append(f"{here}“{what}” is not what {file} holds: run make documents")
            parts += [text[at : block.start], shown]
            at = block.end
        if (new := "".join([*parts, text[at:]])) != text:
            changed[path] = new
    if not check and not complaints:
        for path, new in changed.items():
            write_atomically(path, new)
    return complaints


def documents(root: Path) -> Iterator[tuple[Path, str, list[Block]]]:
    """The Markdown files of the repository's root: path, text to the byte, blocks."""
    for path in sorted(root.glob("*.md")):
        text = path.read_bytes().decode("utf-8")
        yield path, text, list(_blocks(path.name, text))


def figures_of(root: Path, name: str) -> list[str]:
    """The figures of a result file that documents show."""
    parts = [part for _, _, blocks in documents(root) for block in blocks if block.name == name for part in block.parts]
    return sorted({value for key, value in parts if key == "figure"})


def _blocks(document: str, text: str) -> Iterator[Block]:
    """Raises UserError where markers are no pairs."""
    opened: tuple[int, re.Match[str]] | None = None
    for marker in MARKER.finditer(text):
        line = text.count("\n", 0, marker.start()) + 1
        if marker["asked"] is not None and opened is None:
            opened = line, marker
        elif marker["asked"] is None and opened is not None:
            start, end = opened[1].end(), marker.start()
            yield Block(opened[0], opened[1]["asked"], start, end, text[start:end])
            opened = None
        elif opened is None:
            raise UserError(f"{document}, line {line}: <!-- end --> ends no block")
        else:
            break
    if opened is not None:
        raise UserError(f"{document}, line {opened[0]}: the block “{opened[1]['asked']}” has no <!-- end -->")


def show(root: Path, block: Block) -> str:
    """What should stand between the block's markers. Raises UserError where its result file has no such thing."""
    found = read_result(root, block.name)
    (key, value), *options = block.parts or [("", "")]
    try:
        if (key, value, options) == ("provenance", "", []):
            return _provenance(found) + "\n"
        if key == "figure" and not options:
            description = re.match(r"!\[(.*?)\]\(", block.now)
            return f"![{description[1] if description else value}]({_picture(root, found.figure(value))})\n"
        table = found.table(f"{key}: {value}" if value else key)
        return aligned(_part(table, dict(options))) + "\n"
    except UserError as error:
        raise UserError(f"{path_of(Path(), block.name)} {error}") from None


def _provenance(found: ResultFile) -> str:
    seeds = ", ".join(map(str, found.seeds))
    with_seeds = f", seed{'s' if len(found.seeds) > 1 else ''} {seeds}" if seeds else ""
    return f"Printed by `{found.command}` at commit {found.commit}, {found.date}{with_seeds}; {found.machine}."


def _picture(root: Path, figure: Drawn) -> str:
    """The figure's path, if what lies there is the figure."""
    path = root / figure.file
    if not path.is_file() or sha256(path) != figure.sha256:
        raise UserError(f"has another figure than {figure.file}: bring that back, or make record again")
    return figure.file


def _part(table: Printed, options: dict[str, str]) -> Printed:
    """The columns and rows that are asked for, in the order asked."""
    columns, rows = _names(options.pop("columns", "")), _names(options.pop("rows", ""))
    if options:
        raise UserError(f"is asked for “{next(iter(options))}”; a table has columns: and rows:")
    known = {row[0] for row in table.rows}
    for name in [*(set(columns) - {*table.columns}), *(set(rows) - known)]:
        raise UserError(f"has no “{name}” in that table; there are: {'; '.join([*table.columns, *sorted(known)])}")
    shown = [row for name in rows for row in table.rows if row[0] == name] if rows else table.rows
    at = [table.columns.index(name) for name in columns or table.columns]
    return Printed(columns=[table.columns[n] for n in at], rows=[[row[n] for n in at] for row in shown])


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(";") if name.strip()]


def aligned(table: Printed) -> str:
    """Markdown, set in line where no cell is too long for that; columns of numbers are flush right, but the first."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in (table.columns, *table.rows))
    columns = list(zip(head, *body, strict=True))
    long = any(len(cell) > WIDEST for column in columns for cell in column)
    widths = [3 if long else max(3, *map(len, column)) for column in columns]
    right = [n > 0 and all(NUMBER.match(cell) for cell in column[1:]) for n, column in enumerate(columns)]
    rules = [("-" * width)[flush:] + ":" * flush for width, flush in zip(widths, right, strict=True)]
    padded = [
        [f"{cell:{'>' if flush else '<'}{width}}" for cell, width, flush in zip(row, widths, right, strict=True)]
        for row in (head, rules, *body)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


if __name__ == "__main__":
    sys.exit(main())
