"""CSV files of a result file's tables: `results/<name>/<table>.csv`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from pathlib import Path

from pipeline.errors import UserError
from pipeline.report.method_names import replace_method_names
from pipeline.report.result_file import FOLDER, PrintedTable, ResultFile
from pipeline.runtime.files import write_atomically

_DETAILS = re.compile(r"[:;]|\((?!hard\))")  # separates a caption's title from its units and conditions
_SYMBOLS = {"λ": "lambda", "ρ": "rho", "τ": "tau", "@": "", "%": ""}


def format_csv_files(root: Path, name: str, result: ResultFile) -> dict[str, tuple[Path, str]]:
    """Return the path and the text of each table's CSV file, by the table's title.

    Raises UserError where two tables have the same title, or titles with the same file name. The caller puts
    the path of the result file, the subject, before the message.
    """
    files: dict[str, tuple[Path, str]] = {}
    titles: dict[Path, str] = {}
    for caption, table in result.tables.items():
        title = _DETAILS.split(replace_method_names(caption))[0].strip()
        path = root / FOLDER / name / f"{_make_file_name(title)}.csv"
        if path in titles:
            raise UserError(f"has tables “{titles[path]}” and “{title}”, both with the file {path.name}: rename one")
        titles[path], files[title] = title, (path, _format_csv(table))
    return files


def write_csv_files(files: Mapping[Path, str], check: bool) -> list[str]:
    """Write `files` by path, and remove other CSV files from the same folders.

    With `check`, write nothing and return a line for each file that differs or would be removed. Otherwise return [].
    """
    folders = {path.parent for path in files}
    stale = sorted(path for folder in folders for path in folder.glob("*.csv") if path not in files)
    outdated = sorted(path for path, text in files.items() if not path.is_file() or path.read_bytes() != text.encode())
    if check:
        return [
            f"{FOLDER}/{path.parent.name}/{path.name} is not current: run make documents" for path in stale + outdated
        ]
    for path in stale:
        path.unlink()
    for path in outdated:
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, files[path])
    return []


def _make_file_name(title: str) -> str:
    for symbol, word in _SYMBOLS.items():
        title = title.replace(symbol, word)
    return re.sub(r"[^\w.]+", "_", title.lower()).strip("_.")


def _format_csv(table: PrintedTable) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([replace_method_names(row[0]), *row[1:]] for row in table.rows)
    return out.getvalue()
