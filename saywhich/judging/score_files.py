"""Scores as JSON and CSV."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from pipeline.runtime.escaping import csv_cell
from saywhich.judging.judgement import JudgedRow, Judgement
from saywhich.outputs import open_output

COLUMNS = ("captions", "judge", "score", "value", "low", "high")


def judgement_record(found: Judgement) -> dict[str, Any]:
    """Return everything that was measured, as values of JSON."""
    return {
        "images": len(found.files),
        "judges": list(found.judges),
        "hard_galleries": found.gallery_rule,
        "resamples": found.resamples,
        "notes": list(found.notes),
        "captions": {row.name: _row_record(row) for row in (*found.rows, *found.baselines)},
    }


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write a record as JSON."""
    with open_output(path) as file:
        json.dump(record, file, ensure_ascii=False, indent=1)
        file.write("\n")


def write_csv(path: Path, found: Judgement) -> None:
    """Write a row per score of each set of captions."""
    with open_output(path) as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for row in (*found.rows, *found.baselines):
            for key, values in row.scores.items():
                low, high = row.interval(key) or ("", "")
                table.writerow((csv_cell(row.name), csv_cell(key.judge), key.name, values.value, low, high))


def _row_record(row: JudgedRow) -> dict[str, Any]:
    scores: dict[str, dict[str, Any]] = {}
    for key, values in row.scores.items():
        interval = row.interval(key)
        number = {
            "value": values.value,
            **({} if interval is None else dict(zip(("low", "high"), interval, strict=True))),
        }
        scores.setdefault(key.judge or "text", {})[key.name] = number
    return {"captions": sum(map(len, row.captions)), "scores": scores}
