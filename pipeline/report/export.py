"""The report's numbers outside the page: Markdown for the terminal, CSV for plots."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.analysis.compare import Comparison, Estimate
from pipeline.analysis.judges import NEAR, TEXT, Keys, recall_by
from pipeline.analysis.results import LANGUAGE, Results
from pipeline.report.caption_tables import DIVERSITY, READER
from pipeline.report.names import published
from pipeline.report.result_tables import GALLERIES
from pipeline.report.tables import Table, aligned, once
from pipeline.runtime.escaping import csv_cell

WIDTH = 108  # characters a line of the notes
NUMBERS = ("value", "low", "high", "spread", "seeds")


def markdown(tables: Sequence[Table], rule: str = "", failed: Sequence[str] = ()) -> str:
    """The tables, in line, each with its warning and notes; what `failed` and `rule` (how λ is chosen) are first.

    Methods have their papers' names.
    """
    first = [*(f"**WARNING:** {line}" for line in failed), *([rule] if rule else [])]
    parts = [_bullets(first)] if first else []
    for table in once(tables, [rule]):
        heads = [published(f"{column.group} {column.label}".strip()) for column in table.columns]
        rows = [[as_text(cell) for cell in (published(row[0]), *row[1:])] for row in table.rows]
        right = [not column.text for column in table.columns]
        parts += [f"**{published(table.caption)}**", aligned(heads, rows, right, least=2)]
        notes = [*([f"**Warning:** {table.warning}"] if table.warning else []), *table.notes]
        parts += [_bullets(notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def curve_csv(results: Results) -> str:
    """Every run and split as one line, numbers in full, empty where there is none."""
    judges, given = list(results.judges), {key for run in results.runs for key in run.settings}
    keys: dict[str, Keys] = {name: ("language", name) for name in LANGUAGE}
    for label, measure, where in [
        *((recall, recall, ()) for recall in ("R@10", "R@5", "R@1")),
        ("median rank", "median_rank", ()),
        ("human R@10", "R@10", ("human", TEXT)),
        *((f"{size} R@10", "R@10", ("galleries", size)) for size in GALLERIES),
        ("R@1 near", "R@1", ("galleries", NEAR)),
        ("MRR near", "MRR", ("galleries", NEAR)),
    ]:
        keys |= {f"{label} {judge}": recall_by(judge, measure, *where) for judge in judges}
    keys |= {key: ("diversity", key) for key in DIVERSITY}
    keys |= {key: (where, key) for where, key in READER}
    keys |= {f"facts {key}": ("faithfulness", key) for key in ("precision", "told", "claims_per_caption")}
    rows = [
        {"method": run.method, "split": split, **run.settings}
        | {key: run.value(split, *at) for key, at in keys.items()}
        for run in results.runs
        for split in ("val", "test")
    ]
    settings = dict.fromkeys(("lambda", "rho", "seed", *sorted(given)))
    return as_csv(["method", *settings, "split", *keys], rows)


def comparison_csv(comparison: Comparison) -> str:
    """Every number read from the curves as one line, in full.

    `fixed` is what is equal, at `at`; `bound` is ≥ where the number is a lower bound. `difference`, its interval and p
    (Holm-adjusted) are against `reference`, empty where a bound makes it say nothing, and at least or at most that
    where `difference bound` says so.
    """
    rows = []
    for slice_ in (*comparison.at_cider, *comparison.at_score):
        fixed = slice_.fixed if slice_.fixed == "CIDEr" else f"{slice_.fixed} {comparison.results.first.name}"
        for reading in slice_.readings:
            for keys, found in reading.estimates.items():
                judge = keys[1] if keys[0] == "judges" else ""
                row = {
                    "fixed": fixed,
                    "at": slice_.level,
                    "method": reading.curve.label,
                    "metric": " ".join([keys[-1], *["near"] * (NEAR in keys)]),
                }
                row |= {"judge": judge, "bound": "≥" if reading.above else "", **_numbers(found)}
                difference = slice_.differences.get(reading.curve.label, {}).get(judge)
                if slice_.reference and difference and keys == comparison.results.by(judge):
                    low, high = difference.interval
                    row |= {"reference": slice_.reference.label, "difference": difference.value, "p": difference.p}
                    row |= {"difference bound": difference.bound, "difference low": low, "difference high": high}
                rows.append(row)
    head = ["fixed", "at", "method", "metric", "judge", "bound", *NUMBERS]
    differences = ["reference", "difference bound", "difference", "difference low", "difference high", "p"]
    return as_csv([*head, *differences], rows)


def rho_csv(comparison: Comparison) -> str:
    """The score against ρ at an equal CIDEr: one line per method, ρ and judge."""
    rows = [
        {"method": reading.curve.method, "CIDEr": slice_.level, "rho": reading.curve.settings["rho"], "judge": judge}
        | _numbers(found)
        for slice_ in comparison.along_rho
        for reading in slice_.readings
        for judge in comparison.results.judges
        if (found := reading.estimates.get(comparison.results.by(judge)))
    ]
    return as_csv(["method", "CIDEr", "rho", "judge", *NUMBERS], rows)


def _numbers(found: Estimate) -> dict[str, Any]:
    low, high = found.interval or (None, None)
    return dict(zip(NUMBERS, (found.value, low, high, found.spread, found.seeds), strict=True))


def as_csv(head: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """The columns `head` of `rows` as CSV, empty where a row lacks one; no text is a formula to a spreadsheet."""
    import pandas as pd

    cells = [{name: csv_cell(value) for name, value in row.items()} for row in rows]
    return pd.DataFrame(cells, columns=head, dtype=object).to_csv(index=False, lineterminator="\n")


def as_text(cell: str) -> str:
    """A cell of Markdown that shows tags, links and pictures in a text, such as a caption, as they are written."""
    return re.sub(r"<(?=[A-Za-z/!?])|(?<=\])\(", r"\\\g<0>", re.sub(r"[\r\n]+", " ", cell))


def _bullets(notes: Sequence[str]) -> str:
    return "\n".join(
        textwrap.fill(published(note), WIDTH, initial_indent="- ", subsequent_indent="  ") for note in notes
    )
