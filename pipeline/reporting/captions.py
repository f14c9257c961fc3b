"""What was said of the images: rows of the Parquet files that evaluations write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.reporting.results import JUDGES, Run

KEYS = ("method", "cell", "lambda", "rho", "seed")


def texts(run: Run, images: Sequence[int]) -> list[str]:
    """The captions that `run` gives these test images, in their order. Raises UserError where one is missing."""
    filters = [("split", "==", "test")]
    if run.in_sweep and run.cell is not None:
        filters += [("method", "==", run.speaker), ("cell", "==", run.cell)]
    said = {row["image"]: row["caption"] for row in rows_of(run.captions, ["image", "caption"], filters)}
    missing = next((image for image in images if image not in said), None)
    if missing is not None:
        raise UserError(f"{run.captions}: no caption of image {missing} by {run.method}; run its evaluation again.")
    return [said[image] for image in images]


def read_captions(runs: Sequence[Run], images: Sequence[int]) -> list[dict[int, dict[str, Any]]]:
    """Of each run the rows of its captions of these test images, by image; every file is read once."""
    filters = [("split", "==", "test"), ("image", "in", list(images))]
    columns = [*KEYS, "image", "caption", *(f"rank_{judge}" for judge in JUDGES)]
    columns += sorted({run.retrieved_column for run in runs})
    index: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for path in dict.fromkeys(run.captions for run in runs):
        for row in rows_of(path, columns, filters):
            method, cell, *settings = (known(row.get(key)) for key in KEYS)
            # A single run has its file for itself; a cell has a name, or else its settings.
            for key in ((path,), (path, method, cell), (path, method, *settings)):
                index.setdefault(key, {})[row["image"]] = row
    return [index.get(_key(run), {}) for run in runs]


def _key(run: Run) -> tuple[Any, ...]:
    if not run.in_sweep:
        return (run.captions,)
    if run.cell is not None:
        return run.captions, run.speaker, run.cell
    return run.captions, run.speaker, *(run.settings.get(key) for key in KEYS[2:])


def known(value: Any) -> Any:
    """Parquet keeps a missing number as null or NaN."""
    return None if value != value else value


def rows_of(path: Path, columns: Sequence[str], filters: list[Any]) -> list[dict[str, Any]]:
    """The rows that pass, with those of the columns that the file has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        present = set(pq.read_schema(path).names)
        return pq.read_table(path, columns=[name for name in columns if name in present], filters=filters).to_pylist()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it (dvc repro) first.") from None
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read ({reason}); delete it and run its stage again.") from None
