"""What was said of the images: rows of the Parquet files that evaluations write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pipeline.analysis.results import Run
from pipeline.errors import UserError

T = TypeVar("T")


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
        for row in rows_of(path, ["method", "cell", "image", *columns], filters):
            found.setdefault((path, row.get("method"), row.get("cell")), {})[row["image"]] = row
    return [found.get((run.captions, *((run.speaker, run.cell) if run.cell else (None, None))), {}) for run in runs]


def rows_of(path: Path, columns: Sequence[str], filters: list[Any]) -> list[dict[str, Any]]:
    """The rows that pass, with those of the columns that the file has."""
    import pyarrow.parquet as pq

    present = set(names_of(path))
    wanted = [name for name in columns if name in present]
    return read(path, lambda: pq.read_table(path, columns=wanted, filters=filters)).to_pylist()


def names_of(path: Path) -> list[str]:
    """The columns of a Parquet file."""
    import pyarrow.parquet as pq

    return list(read(path, lambda: pq.read_schema(path)).names)


def read(path: Path, reading: Callable[[], T]) -> T:
    """What `reading` reads from the Parquet file `path`, or UserError."""
    import pyarrow as pa

    try:
        return reading()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it (dvc repro) first.") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: cannot be read ({reason}); delete it and run its stage again.") from None
