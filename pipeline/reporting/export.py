"""The numbers outside the page: Markdown for the terminal, CSV for plots."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Sequence

from pipeline.reporting.results import JUDGES, LANGUAGE, Results
from pipeline.reporting.tables import DIVERSITY, Table

WIDTH = 108  # characters a line of the notes


def markdown(tables: Sequence[Table], rule: str) -> str:
    """The tables, aligned to be read as they are, and below them warnings, the rule of choice and all notes."""
    warnings = dict.fromkeys(f"**Warning:** {table.warning}" for table in tables if table.warning)
    notes = [*warnings, rule, *(note for table in tables for note in table.notes)]
    bullets = [textwrap.fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in notes]
    return "\n\n".join([*map(_aligned, tables), "\n".join(bullets)]) + "\n"


def curve_csv(results: Results) -> str:
    """Every run and split as one line, numbers in full, empty where there is none."""
    others = sorted({key for run in results.runs for key in run.settings} - {"lambda", "rho", "seed"})
    metrics: dict[str, tuple[str, ...]] = {name: ("language", name) for name in LANGUAGE}
    for recall in ("R@10", "R@5", "R@1"):
        metrics |= {f"{recall} {judge}": (judge, "text_to_image", recall) for judge in JUDGES}
    metrics |= {f"median rank {judge}": (judge, "text_to_image", "median_rank") for judge in JUDGES}
    metrics |= {f"human R@10 {judge}": ("human", judge, "text_to_image", "R@10") for judge in JUDGES}
    metrics |= {key: ("diversity", key) for key in DIVERSITY}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["method", "lambda", "rho", "seed", *others, "split", *metrics])
    for run in results.runs:
        for split in ("val", "test"):
            values = [run.value(split, *keys) for keys in metrics.values()]
            fixed = [run.settings.get(key, "") for key in ("lambda", "rho", "seed", *others)]
            writer.writerow([run.method, *fixed, split, *("" if v is None else repr(v) for v in values)])
    return out.getvalue()


def _aligned(table: Table) -> str:
    columns = table.columns
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in table.rows]
    widths = [max(len(cell) for cell in cells) for cells in zip([c.label for c in columns], *escaped, strict=True)]

    def line(cells: Iterable[str]) -> str:
        padded = (c.ljust(w) if col.text else c.rjust(w) for c, w, col in zip(cells, widths, columns, strict=True))
        return "| " + " | ".join(padded) + " |"

    rules = ("-" * w if col.text else "-" * (w - 1) + ":" for w, col in zip(widths, columns, strict=True))
    return "\n".join([line(c.label for c in columns), "| " + " | ".join(rules) + " |", *map(line, escaped)])
