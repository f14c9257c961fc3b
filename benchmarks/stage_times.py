"""Seconds and start times of the stages since the last stage `draw@…` began, as MLflow recorded them.

    python benchmarks/stage_times.py [DATABASE]

Cells of the grid are part of `sweep`. The time between stages is DVC's: its start, its check for changes, and its
caching of outputs.
"""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing
from pathlib import Path

from printing import begin_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", nargs="?", default="mlflow.db", help="MLflow's SQLite database")
    query = "SELECT name, start_time, end_time FROM runs WHERE end_time IS NOT NULL ORDER BY start_time"
    path = parser.parse_args().database
    if not Path(path).is_file():
        parser.error(f"{path}: no such database; run make repro first, or give MLflow's database")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        runs = database.execute(query).fetchall()
    begin = max((start for name, start, _ in runs if name.startswith("draw")), default=None)
    if begin is None:
        parser.error(
            f"{path}: expected a finished run of the stage draw, found none; run make repro with drawn data first"
        )
    print_row = begin_table("Stages of make repro", "stage", "began, s", "s", first=26)
    for name, start, end in runs:
        if start >= begin and " " not in name:
            print_row(name, f"{(start - begin) / 1000:.0f}", f"{(end - start) / 1000:.1f}")
    print_row("all", "", f"{(max(end for _, _, end in runs) - begin) / 1000:.0f}")


if __name__ == "__main__":
    main()
