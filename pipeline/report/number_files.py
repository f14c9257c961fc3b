"""Number files of the report: Markdown for the terminal, CSV for plots."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.analysis.comparison import Comparison, Estimate
from pipeline.analysis.judge_titles import TEXT, Keys, make_recall_keys
from pipeline.analysis.results import LANGUAGE, Results
from pipeline.metrics.gallery_names import HARD_GALLERY
from pipeline.report.caption_tables import DIVERSITY, SURFACE
from pipeline.report.method_names import replace_method_names
from pipeline.report.result_tables import GALLERIES
from pipeline.report.tables import Table, drop_repeated_notes, format_markdown_table
from pipeline.runtime.escaping import escape_csv_cell

WIDTH = 108  # characters per line of the notes
NUMBERS = ("value", "low", "high", "spread", "seeds")


def format_markdown(tables: Sequence[Table], rule: str = "", failed: Sequence[str] = ()) -> str:
    """Return aligned tables as Markdown, each with its warning and notes; `failed` and `rule` precede them.

    `failed` are warnings of failed trainings, and `rule` states how λ is chosen. Methods have their published names.
    """
    head_notes = [*(f"**WARNING:** {line}" for line in failed), *([rule] if rule else [])]
    parts = [_format_bullets(head_notes)] if head_notes else []
    for table in drop_repeated_notes(tables, [rule]):
        heads = [replace_method_names(f"{column.group} {column.label}".strip()) for column in table.columns]
        rows = [[escape_markdown(cell) for cell in (replace_method_names(row[0]), *row[1:])] for row in table.rows]
        right_aligned = [not column.text for column in table.columns]
        parts += [
            f"**{replace_method_names(table.caption)}**",
            format_markdown_table(heads, rows, right_aligned, min_width=2),
        ]
        notes = [*([f"**Warning:** {table.warning}"] if table.warning else []), *table.notes]
        parts += [_format_bullets(notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def format_curve_csv(results: Results) -> str:
    """Return the CSV with a line per run and split (val, test); numbers are unrounded, and missing values are empty."""
    judges, settings = list(results.judges), {key for run in results.runs for key in run.settings}
    keys: dict[str, Keys] = {name: ("language", name) for name in LANGUAGE}
    for label, measure, parent_keys in [
        *((recall, recall, ()) for recall in ("R@10", "R@5", "R@1")),
        ("median rank", "median_rank", ()),
        ("human R@10", "R@10", ("human", TEXT)),
        *((f"{size} R@10", "R@10", ("galleries", size)) for size in GALLERIES),
        ("R@1 (hard)", "R@1", ("galleries", HARD_GALLERY)),
        ("MRR (hard)", "MRR", ("galleries", HARD_GALLERY)),
    ]:
        keys |= {f"{label} {judge}": make_recall_keys(judge, measure, *parent_keys) for judge in judges}
    keys |= {key: ("diversity", key) for key in DIVERSITY}
    keys |= {key: (group, key) for group, key in SURFACE}
    keys |= {f"facts {key}": ("faithfulness", key) for key in ("precision", "told", "claims_per_caption")}
    rows = [
        {"method": run.method, "split": split, **run.settings}
        | {key: run.value(split, *metric_keys) for key, metric_keys in keys.items()}
        for run in results.runs
        for split in ("val", "test")
    ]
    setting_columns = dict.fromkeys(("lambda", "rho", "seed", *sorted(settings)))
    return format_csv(["method", *setting_columns, "split", *keys], rows)


def format_comparison_csv(comparison: Comparison) -> str:
    """Return the CSV with a line per value read from the curves; numbers are unrounded.

    Methods are compared at the value `at` of the metric `fixed`; `bound` is ≥ where the value is a lower bound.
    `difference`, its interval and p (Holm-adjusted) are against `reference`, in the report's score at an equal CIDEr.
    They are empty for other metrics, without resamples, and where bounds do not determine the order. `difference bound`
    states whether the difference is a lower or an upper bound.
    """
    rows = []
    for slice_ in (*comparison.at_cider, *comparison.at_score):
        fixed = slice_.fixed if slice_.fixed == "CIDEr" else f"{slice_.fixed} {comparison.results.first_judge.name}"
        for reading in slice_.readings:
            for keys, estimate in reading.estimates.items():
                judge = keys[1] if keys[0] == "judges" else ""
                row = {
                    "fixed": fixed,
                    "at": slice_.level,
                    "method": reading.curve.label,
                    "metric": " ".join([keys[-1], *["(hard)"] * (HARD_GALLERY in keys)]),
                }
                row |= {"judge": judge, "bound": "≥" if reading.is_lower_bound else "", **_list_numbers(estimate)}
                difference = slice_.differences.get(reading.curve.label, {}).get(judge)
                if slice_.reference and difference and keys == comparison.results.score_keys(judge):
                    low, high = difference.interval
                    row |= {"reference": slice_.reference.label, "difference": difference.value, "p": difference.p}
                    row |= {"difference bound": difference.bound, "difference low": low, "difference high": high}
                rows.append(row)
    head = ["fixed", "at", "method", "metric", "judge", "bound", *NUMBERS]
    differences = ["reference", "difference bound", "difference", "difference low", "difference high", "p"]
    return format_csv([*head, *differences], rows)


def format_rho_csv(comparison: Comparison) -> str:
    """Return the CSV of the score against ρ at an equal CIDEr: one line per method, ρ and judge."""
    rows = [
        {"method": reading.curve.method, "CIDEr": slice_.level, "rho": reading.curve.settings["rho"], "judge": judge}
        | _list_numbers(estimate)
        for slice_ in comparison.along_rho
        for reading in slice_.readings
        for judge in comparison.results.judges
        if (estimate := reading.estimates.get(comparison.results.score_keys(judge)))
    ]
    return format_csv(["method", "CIDEr", "rho", "judge", *NUMBERS], rows)


def _list_numbers(estimate: Estimate) -> dict[str, Any]:
    low, high = estimate.interval or (None, None)
    return dict(zip(NUMBERS, (estimate.value, low, high, estimate.spread, estimate.seeds), strict=True))


def format_csv(head: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the columns `head` of `rows` as CSV, escaped against spreadsheet formulas; missing values are empty."""
    import pandas as pd

    cells = [{name: escape_csv_cell(value) for name, value in row.items()} for row in rows]
    return pd.DataFrame(cells, columns=head, dtype=object).to_csv(index=False, lineterminator="\n")


def escape_markdown(cell: str) -> str:
    """Escape tags, links and images in a Markdown cell, so that none of them is rendered; make it one line."""
    line = re.sub(r"[\r\n]+", " ", cell)
    # existing backslashes before a tag are doubled, because they would escape the added backslash
    return re.sub(r"(\\*)(<(?=[A-Za-z/!?])|(?<=\])\()", r"\1\1\\\2", line)


def _format_bullets(notes: Sequence[str]) -> str:
    # lines break only between words, because Markdown renders a line break within a name or a path as a space
    wrapper = textwrap.TextWrapper(
        WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapper.fill(replace_method_names(note)) for note in notes)
