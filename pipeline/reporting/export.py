"""The numbers outside the page: Markdown for the terminal, CSV for plots."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterable, Sequence

from pipeline.reporting.compared import Comparison, Estimate
from pipeline.reporting.observatory import Observatory
from pipeline.reporting.quality_tables import DIVERSITY, GALLERIES
from pipeline.reporting.results import JUDGES, LANGUAGE, Results
from pipeline.reporting.tables import Table

WIDTH = 108  # characters a line of the notes
NUMBERS = ("value", "low", "high", "spread", "seeds")


def markdown(tables: Sequence[Table], rule: str = "") -> str:
    """The tables, aligned to be read as they are, each with its warning and notes; a rule of choice comes first.

    A note that already stands above is not repeated, except the protocol, which stands under every table that has one.
    """
    parts, said = [_bullets([rule])] if rule else [], {rule}
    for table in tables:
        parts += [f"**{table.caption}**", _aligned(table)]
        notes = [f"**Warning:** {table.warning}"] if table.warning else []
        notes += [note for note in table.notes if note not in said or note.startswith("Protocol")]
        said.update(notes)
        parts += [_bullets(notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def curve_csv(results: Results) -> str:
    """Every run and split as one line, numbers in full, empty where there is none."""
    others = sorted({key for run in results.runs for key in run.settings} - {"lambda", "rho", "seed"})
    metrics: dict[str, tuple[str, ...]] = {name: ("language", name) for name in LANGUAGE}
    for recall in ("R@10", "R@5", "R@1"):
        metrics |= {f"{recall} {judge}": (judge, "text_to_image", recall) for judge in JUDGES}
    metrics |= {f"median rank {judge}": (judge, "text_to_image", "median_rank") for judge in JUDGES}
    metrics |= {f"human R@10 {judge}": ("human", judge, "text_to_image", "R@10") for judge in JUDGES}
    for size in GALLERIES:
        metrics |= {f"{size} R@10 {judge}": ("galleries", judge, size, "R@10") for judge in JUDGES}
    metrics |= {key: ("diversity", key) for key in DIVERSITY}
    metrics |= {f"facts {key}": ("faithfulness", key) for key in ("precision", "told", "claims_per_caption")}
    rows = []
    for run in results.runs:
        for split in ("val", "test"):
            fixed = [run.settings.get(key, "") for key in ("lambda", "rho", "seed", *others)]
            rows.append([run.method, *fixed, split, *(_full(run.value(split, *keys)) for keys in metrics.values())])
    return _csv(["method", "lambda", "rho", "seed", *others, "split", *metrics], rows)


def comparison_csv(comparison: Comparison) -> str:
    """Every number read from the curves as one line, in full.

    `fixed` is what is equal, at `at`; `difference`, its interval and p (Holm-adjusted) are against `reference`.
    """
    slices = [("CIDEr", slice_) for slice_ in comparison.at_cider]
    slices += [(f"{comparison.recall} own", slice_) for slice_ in comparison.at_recall]
    rows = []
    for fixed, slice_ in slices:
        for reading in slice_.readings:
            differences = slice_.differences.get(reading.curve.label, {})
            for keys, found in reading.estimates.items():
                row = [fixed, repr(slice_.level.value), reading.curve.label, *_named(keys), *_numbers(found)]
                difference = differences.get(keys[0]) if keys[-1] == "R@10" else None
                if difference is None or slice_.reference is None:
                    row += [""] * 5
                else:
                    row += [slice_.reference.label, _full(difference.value), *map(_full, difference.interval)]
                    row += [_full(difference.p)]
                rows.append(row)
    head = ["fixed", "at", "method", "metric", "judge", *NUMBERS]
    return _csv([*head, "reference", "difference", "difference low", "difference high", "p"], rows)


def rho_csv(comparison: Comparison) -> str:
    """Recall against ρ at an equal CIDEr: one line a method, ρ and judge."""
    rows = []
    for series in comparison.rho:
        for reading in series.readings:
            for keys, found in reading.estimates.items():
                if keys[-1] == "R@10":
                    rho = reading.curve.settings["rho"]
                    rows.append([series.method, repr(series.cider), rho, keys[0], *_numbers(found)])
    return _csv(["method", "CIDEr", "rho", "judge", *NUMBERS], rows)


def observatory_csv(found: Observatory) -> str:
    """Each estimator, number of samples, score and world as one line, numbers in full."""
    keys = ("bias", "bias_error", "cosine", "length", "variance")
    rows = []
    for row in found.rows:
        settings = [row.settings.get(key, "") for key in ("rho", "temperature")]
        for n, world in enumerate(row.worlds, 1):
            numbers = [_full(value) for value in (*(world[key] for key in keys), row.seconds)]
            rows.append([row.score, row.name, *settings, row.samples, row.exact, n, *numbers])
    head = ["score", "estimator", "rho", "temperature", "samples", "exact", "world", *keys, "seconds"]
    return _csv(head, rows)


def _numbers(found: Estimate) -> list[str]:
    low, high = found.interval or (None, None)
    return [*map(_full, (found.value, low, high, found.spread)), str(found.seeds)]


def _named(keys: Sequence[str]) -> tuple[str, str]:
    """The metric and, for a recall, its judge."""
    return (keys[1], "") if keys[0] == "language" else (keys[-1], keys[0])


def _full(value: float | None) -> str:
    return "" if value is None else repr(value)


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()


def _bullets(notes: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in notes)


def _aligned(table: Table) -> str:
    columns = table.columns
    labels = [f"{column.group} {column.label}".strip().replace("|", "\\|") for column in columns]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in table.rows]
    widths = [max(2, *map(len, cells)) for cells in zip(labels, *escaped, strict=True)]  # a rule has a dash

    def line(cells: Iterable[str]) -> str:
        padded = (c.ljust(w) if col.text else c.rjust(w) for c, w, col in zip(cells, widths, columns, strict=True))
        return "| " + " | ".join(padded) + " |"

    rules = ("-" * w if col.text else "-" * (w - 1) + ":" for w, col in zip(widths, columns, strict=True))
    return "\n".join([line(labels), "| " + " | ".join(rules) + " |", *map(line, escaped)])
