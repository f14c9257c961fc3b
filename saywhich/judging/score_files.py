"""Scores as JSON and CSV."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from pipeline.runtime.escaping import escape_csv_cell
from saywhich.judging.judgement import JudgedRow, Judgement
from saywhich.outputs import open_output

COLUMNS = ("captions", "judge", "score", "value", "low", "high")


def make_judgement_record(judgement: Judgement) -> dict[str, Any]:
    """Return the scores of a judgement as values of JSON."""
    return {
        "images": len(judgement.files),
        "judges": list(judgement.judges),
        "hard_galleries": judgement.gallery_rule,
        "resamples": judgement.resamples,
        "notes": list(judgement.notes),
        "captions": {row.name: _make_row_record(row) for row in (*judgement.rows, *judgement.baselines)},
    }


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON."""
    with open_output(path) as file:
        json.dump(record, file, ensure_ascii=False, indent=1)
        file.write("\n")


def write_csv(path: Path, judgement: Judgement) -> None:
    """Write a row per score of each set of captions as CSV."""
    with open_output(path) as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for row in (*judgement.rows, *judgement.baselines):
            for key, values in row.scores.items():
                low, high = row.compute_interval(key) or ("", "")
                table.writerow(
                    (escape_csv_cell(row.name), escape_csv_cell(key.judge), key.name, values.value, low, high)
                )


def _make_row_record(row: JudgedRow) -> dict[str, Any]:
    scores: dict[str, dict[str, Any]] = {}
    for key, values in row.scores.items():
        interval = row.compute_interval(key)
        number = {
            "value": values.value,
            **({} if interval is None else dict(zip(("low", "high"), interval, strict=True))),
        }
        scores.setdefault(key.judge or "text", {})[key.name] = number
    return {"captions": sum(map(len, row.captions)), "scores": scores}
