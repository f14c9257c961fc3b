"""The captions of test images: rows of the Parquet files that evaluations write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.analysis.results import Run
from pipeline.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa


def texts(run: Run, images: Sequence[int]) -> list[str]:
    """The captions that `run` gives these test images, in their order. Raises UserError where one is missing."""
    (said,) = read_captions([run], images, ["caption"])
    missing = next((image for image in images if image not in said), None)
    if missing is not None:
        raise UserError(f"{run.captions}: no caption of image {missing} by {run.method}; run its evaluation again.")
    return [said[image]["caption"] for image in images]


def read_captions(
    runs: Sequence[Run], images: Sequence[int], columns: Sequence[str]
) -> list[dict[int, dict[str, Any]]]:
    """Of each run the rows of its captions of these test images, by image; every file is read once."""
    found: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for path in dict.fromkeys(run.captions for run in runs):
        filters = [("split", "==", "test"), ("image", "in", list(images))]
        here = [run for run in runs if run.captions == path]
        if here[0].cell is not None:
            filters += [("method", "in", [run.speaker for run in here]), ("cell", "in", [run.cell for run in here])]
        for row in read_rows(path, ["method", "cell", "image", *columns], filters).to_pylist():
            found.setdefault((path, row.get("method"), row.get("cell")), {})[row["image"]] = row
    return [found.get(run.place, {}) for run in runs]


def read_rows(path: Path, columns: Sequence[str], filters: list[Any]) -> pa.Table:
    """The rows of a Parquet file that pass `filters`, with those of `columns` that it has.

    Raises UserError if the file is missing or cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        present = set(pq.read_schema(path).names)
        return pq.read_table(path, columns=[name for name in columns if name in present], filters=filters)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it (dvc repro) first.") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read ({reason}); delete it and run its stage again.") from None
