"""The results of the last run, beside the recorded results over starts: python -m pipeline.workflow.show_results."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.report.recording import iterate_tables
from pipeline.report.result_file import PrintedTable
from pipeline.report.starts import (
    RecordedComparison,
    compare_differences_with_recorded,
    compare_with_recorded,
    read_starts,
)
from pipeline.report.table_captions import RESULTS
from pipeline.report.tables import format_markdown_table
from pipeline.runtime.command import run_command
from pipeline.workflow.nearest_record import find_nearest_record

TABLE, REPORT = Path("data/report/table.md"), Path("data/report/report.html")
PHOTOS = REPORT.with_name("photos.txt")  # the summary of a run on few photos


def format_comparison(root: Path) -> str:
    """Return this run's results and their differences from the control, with the recorded mean and deviation.

    Returns "" without this run's table or two recorded starts, and where this run and the starts share no number. For
    tables that cannot be compared, returns a line with the reason, since the run itself is complete.
    """
    try:
        record = find_nearest_record(root)
        starts = read_starts(root, record.name) if record else {}
        own_results = dict(iterate_tables((root / TABLE).read_text(encoding="utf-8"))).get(RESULTS)
        if record is None or own_results is None or len(starts) < 2:
            return ""
        recorded = [file.table(RESULTS) for file in starts.values()]
        levels = compare_with_recorded(own_results, recorded)
        differences = compare_differences_with_recorded(own_results, recorded)
    except UserError as error:
        return f"This run is not compared with recorded ones: {error}"
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        return (
            f"This run is not compared with recorded ones: {TABLE} is damaged ({problem}); run the report stage again"
        )
    if len(levels.table.columns) == 1:
        return ""
    spread = f"mean ± standard deviation of {len(starts)} starts"
    lines = [
        f"**This run (recorded: {spread})**",
        "",
        _format_table(levels.table),
        "",
        *_list_outliers(levels, "number"),
        f"- {record.describe()}",
    ]
    if len(differences.table.columns) > 1:
        title = f"**Differences from {own_results.rows[0][0]} in this run (recorded: {spread})**"
        lines += ["", title, "", _format_table(differences.table), "", *_list_outliers(differences, "difference")]
    return "\n".join(lines)


def _format_table(table: PrintedTable) -> str:
    return format_markdown_table(table.columns, table.rows, [n > 0 for n in range(len(table.columns))], padded=True)


def _list_outliers(comparison: RecordedComparison, noun: str) -> list[str]:
    """Return a line for each outlier and their count, or one line if there is none."""
    if not comparison.outliers:
        return [f"- Every compared {noun} is in its 95 % prediction interval."]
    return [
        *(f"- {line}." for line in comparison.outliers),
        f"- Outliers: {len(comparison.outliers)} of {comparison.compared} compared {noun}s; the expected number is "
        f"{0.05 * comparison.compared:.1f}, since an interval covers 95 % of new starts.",
    ]


def main() -> int:
    """Print the results; return the exit status: 0, or 2 where there is no report."""

    def work() -> None:
        if not TABLE.is_file():
            raise UserError(f"{TABLE}: no such file; run make repro first")
        print((PHOTOS if PHOTOS.is_file() else TABLE).read_text(encoding="utf-8"))
        if comparison := format_comparison(Path()):
            print(f"{comparison}\n")
        print(f"The report: {REPORT}; all tables: {REPORT.with_name('tables.md')}")

    return run_command("results", work)


if __name__ == "__main__":
    sys.exit(main())
