"""Readers of the captions of test images: rows of the Parquet files that evaluations write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.analysis.results import Point, Results, Run
from pipeline.errors import UserError, summarise_error

if TYPE_CHECKING:
    import pyarrow as pa

CONTROL_OVERLAP = ("reader", "as_control")


def add_control_overlap(results: Results, control: str) -> Results:
    """Return `results` with the share of each other run's test captions that equal the control's.

    The share is at `CONTROL_OVERLAP`. A run is compared with the control's run of the same seed. It has no share if the
    control lacks that seed or has other images. No run has a share unless the control has exactly one setting. Raises
    UserError as `read_captions` does.
    """
    points = results.get_points(control)
    control_runs = {run.settings.get("seed"): run for run in points[0].runs} if len(points) == 1 else {}
    others = [run for run in results.runs if run.method != control and run.settings.get("seed") in control_runs]
    captions = read_captions([*control_runs.values(), *others], None, ["caption"])
    control_captions = dict(zip(control_runs, captions, strict=False))
    shares: dict[tuple[Any, ...], float] = {}
    for run, rows in zip(others, captions[len(control_runs) :], strict=True):
        control_rows = control_captions[run.settings.get("seed")]
        if rows and rows.keys() == control_rows.keys():
            equal = sum(row["caption"] == control_rows[image]["caption"] for image, row in rows.items())
            shares[run.captions_key] = equal / len(rows)

    def add_share(run: Run) -> Run:
        share = shares.get(run.captions_key)
        return run if share is None else replace(run, numbers={**run.numbers, ("test", *CONTROL_OVERLAP): share})

    return replace(results, points=tuple(Point(tuple(map(add_share, point.runs))) for point in results.points))


def read_texts(run: Run, images: Sequence[int]) -> list[str]:
    """Return the captions of `run` for these test images, in their order.

    Raises UserError if a caption is missing, and as `read_captions` does.
    """
    (captions,) = read_captions([run], images, ["caption"])
    missing = next((image for image in images if image not in captions), None)
    if missing is not None:
        raise UserError(
            f"{run.captions}: expected a caption of image {missing} by {run.speaker}, found none; delete the file and "
            "run its stage again."
        )
    return [captions[image]["caption"] for image in images]


def read_captions(
    runs: Sequence[Run], images: Sequence[int] | None, columns: Sequence[str]
) -> list[dict[int, dict[str, Any]]]:
    """Return each run's rows of these test images (None: all), by image; each file is read once.

    Other `columns` than caption may be missing. Raises UserError as `read_rows` does, and where the column image or
    caption is missing.
    """
    rows_by_run: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for path in dict.fromkeys(run.captions for run in runs):
        filters: list[Any] = [("split", "==", "test")]
        filters += [] if images is None else [("image", "in", list(images))]
        file_runs = [run for run in runs if run.captions == path]
        if file_runs[0].cell is not None:
            filters.append(("method", "in", [run.speaker for run in file_runs]))
            filters.append(("cell", "in", [run.cell for run in file_runs]))
        table = read_rows(path, ["method", "cell", "image", *columns], filters)
        for name in ("image", "caption"):
            if name in ("image", *columns) and name not in table.column_names:
                raise UserError(
                    f"{path}: expected a column {name}, found none; delete the file and run its stage again."
                )
        for row in table.to_pylist():
            rows_by_run.setdefault((path, row.get("method"), row.get("cell")), {})[row["image"]] = row
    return [rows_by_run.get(run.captions_key, {}) for run in runs]


def read_rows(path: Path, columns: Sequence[str], filters: list[Any] | None = None) -> pa.Table:
    """Return the rows of a Parquet file that pass `filters` (None: all), with the existing ones of `columns`.

    Raises UserError if the file is missing or cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        present = set(pq.read_schema(path).names)
        kept = [name for name in columns if name in present]
        return pq.read_table(path, columns=kept, filters=filters, page_checksum_verification=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it (dvc repro) first.") from None
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path}: cannot be read ({summarise_error(error)}); delete it and run its stage again."
        ) from None
