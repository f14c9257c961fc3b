"""The grid: its cells, the digest of each cell's dependencies, and the collection of their results.

python -m pipeline.workflow.grid_cells gather FOLDER gathers the results of all cells of params.yaml in FOLDER.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pipeline.config.name_checks import find_value, read_checked_names
from pipeline.config.reading import show_value
from pipeline.config.views import list_deps, list_stage_keys
from pipeline.errors import UserError, summarise_error
from pipeline.runtime.checksums import check_captions, check_history, read_checksummed_json, write_checksums
from pipeline.runtime.command import run_command
from pipeline.runtime.cores import count_cores
from pipeline.runtime.files import atomic_path, compute_digest, write_atomically

CELLS, SNAKEMAKE = Path("data/cells"), Path(".snakemake")
ALIVE = SNAKEMAKE / "alive.lock"
CELL_STAGES = ("train", "adapt", "evaluate")  # stages that Snakemake runs for each cell of `sweep`


@dataclass(frozen=True)
class GridCell:
    """One training run of the grid, the listener adapted to its speaker, and their evaluation."""

    method: str
    settings: Mapping[str, Any]  # options of the method's block
    seed: int

    @property
    def name(self) -> str:
        """Return a name such as lambda=0.005_rho=0.25_seed=1, unique within a method, also used for the cell's folder.

        The name has no comma, which Snakemake would parse as the next wildcard when it submits the cell to a cluster.
        """
        return "_".join(
            f"{key}={_make_file_name_part(value)}" for key, value in {**self.settings, "seed": self.seed}.items()
        )

    @property
    def folder(self) -> Path:
        """Return the folder of the cell's outputs."""
        return CELLS / self.method / self.name

    @property
    def options(self) -> list[str]:
        """Return the command-line options of the cell's stages: method, settings and seed."""
        keys = [f"methods.{self.method}.{key}={json.dumps(value)}" for key, value in self.settings.items()]
        return ["--method", self.method, *(part for key in keys for part in ("--set", key)), "--seed", str(self.seed)]


def list_cells(params: Mapping[str, Any]) -> list[GridCell]:
    """Return all cells of `sweep` in params.yaml: for each grid of a method, the product of its options and its seeds.

    A grid without seeds of its own uses `sweep.seeds`. Raises UserError for an unknown method, and where `methods`,
    `sweep` or a grid is no mapping. Raises UserError also for an option without a list of values, values that JSON
    cannot hold, such as dates, and two cells of one name.
    """
    sweep = params.get("sweep") or {}
    if not isinstance(sweep, Mapping):
        raise UserError(f"params.yaml: sweep: must be a mapping with seeds and grid, and is {show_value(sweep)}")
    for key in ("methods", "sweep.grid"):
        if not isinstance(value := find_value(params, key) or {}, Mapping):
            raise UserError(f"params.yaml: {key}: must be a mapping of methods, and is {show_value(value)}")
    grid: list[GridCell] = []
    for method, grids in (sweep.get("grid") or {}).items():
        if method not in (params.get("methods") or {}):
            raise UserError(f"params.yaml: sweep.grid.{method}: no such method under methods:; add it there")
        for options in grids if isinstance(grids, list) else [grids]:
            if not isinstance(options or {}, Mapping):
                raise UserError(
                    f"params.yaml: sweep.grid.{method}: must map options to lists, and is {show_value(options)}"
                )
            axes = {**(options or {})}
            axes["seed"] = axes.pop("seed", sweep.get("seeds") or [])
            for key, values in axes.items():
                location = f"sweep.grid.{method}.{key}" if key in (options or {}) else "sweep.seeds"
                if not isinstance(values, list) or not values:
                    raise UserError(
                        f"params.yaml: {location}: must be a list of values, as in [1, 2], and is {show_value(values)}"
                    )
                try:
                    json.dumps(values)
                except TypeError:  # dates, bytes and sets have no JSON
                    raise UserError(
                        f"params.yaml: {location}: must be numbers, texts, lists or mappings, and is "
                        f"{show_value(values)}; put texts in quotes"
                    ) from None
            for combination in itertools.product(*axes.values()):
                settings = dict(zip(axes, combination, strict=True))
                grid.append(GridCell(method, settings, settings.pop("seed")))
    folders = set()
    for cell in grid:
        if cell.folder in folders:
            raise UserError(f"params.yaml: sweep: the cell {cell.method} {cell.name} occurs twice; remove one of them")
        folders.add(cell.folder)
    return grid


def compute_digests(paths: Iterable[str]) -> dict[str, str]:
    """Return a digest of each file's content, or of a folder's names and contents, by path.

    The digest is "missing" for absent paths and empty folders.
    """
    digest_by_path = {}
    for path in set(paths):
        try:
            digest_by_path[path] = compute_digest(Path(path))
        except FileNotFoundError:
            digest_by_path[path] = "missing"
    return digest_by_path


def compute_cell_digest(
    cell: GridCell, stage: str, params: Mapping[str, Any], digests: Mapping[str, str], workflow: Mapping[str, Any]
) -> str:
    """Return a digest of the parameters and the content of dependencies that decide a cell's results in a stage.

    dvc.yaml (`workflow`) lists the parameters of the stage; the cell's own settings replace their values.
    `digests` has the digest of each dependency, as `compute_digests` returns it.
    """
    tree = copy.deepcopy(dict(params))
    tree["seed"] = cell.seed
    tree["methods"][cell.method] = {**(tree["methods"][cell.method] or {}), **cell.settings}
    values = {key: find_value(tree, key) for key in list_stage_keys(workflow, stage, cell.method, tree)}
    files = {path: digests[path] for path in list_deps(workflow, stage, params["methods"][cell.method] or {})}
    return hashlib.sha256(json.dumps([values, files], sort_keys=True).encode()).hexdigest()


def gather_results(grid: Sequence[GridCell], out: Path) -> None:
    """Write the results of all cells, in the order of `grid`, into the folder `out`.

    cells.json has the metrics, captions.parquet the captions with columns that name the cell, and history.jsonl the
    entries of the training histories. The SHA-256 of every file in `out` is written last. Raises UserError for results
    that are damaged or belong to another method or seed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    entries, tables, history_lines = [], [], []
    for cell in grid:
        remedy = f"delete {cell.folder} and run the grid again"
        check_history(cell.folder / "weights.safetensors")
        history = cell.folder / "history.jsonl"
        try:
            for line in history.read_text(encoding="utf-8").splitlines():
                history_lines.append(json.dumps({"method": cell.method, "cell": cell.name, **json.loads(line)}))
        except (ValueError, TypeError) as error:  # damaged weights give no digest of the history
            raise UserError(f"{history}: a line is no JSON object ({summarise_error(error)}); {remedy}") from None
        metrics_path = cell.folder / "evaluation/metrics.json"
        metrics = read_checksummed_json(metrics_path, remedy)
        if (found := (metrics.get("method"), metrics.get("settings", {}).get("seed"))) != (cell.method, cell.seed):
            raise UserError(
                f"{metrics_path}: expected results of {cell.method} with seed {cell.seed}, found those of "
                f"{show_value(found[0])} with seed {show_value(found[1])}; {remedy}"
            )
        check_captions(metrics_path, metrics)
        settings = {**metrics.get("settings", {}), **cell.settings, "seed": cell.seed}
        entries.append({"cell": cell.name, **metrics, "settings": settings})
        path = cell.folder / "evaluation/captions.parquet"
        try:
            table = pq.read_table(path, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise UserError(
                f"{path}: cannot be read ({summarise_error(error)}); delete it and run the grid again"
            ) from None
        columns = {
            "method": pa.array([cell.method] * len(table), pa.string()),
            "cell": pa.array([cell.name] * len(table), pa.string()),
            "lambda": pa.array([settings.get("lambda")] * len(table), pa.float64()),
            "rho": pa.array([settings.get("rho")] * len(table), pa.float64()),
            "seed": pa.array([cell.seed] * len(table), pa.int64()),
        }
        columns |= {name: table[name] for name in table.column_names if name not in columns}
        tables.append(pa.table(columns))
    write_atomically(out / "history.jsonl", "".join(f"{line}\n" for line in history_lines))
    all_captions = pa.table({"cell": pa.array([], pa.string())})
    if tables:
        all_captions = pa.concat_tables(tables, promote_options="default")
    with atomic_path(out / "captions.parquet") as temporary:
        pq.write_table(all_captions, temporary, write_page_checksum=True)
    write_atomically(out / "cells.json", json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    write_checksums(out)


def count_parallel_cells() -> int:
    """Return the number of cells that run at once: SAYWHICH_CORES, by default the number of cores.

    Raises UserError where SAYWHICH_CORES is not a whole number from 1.
    """
    value = os.environ.get("SAYWHICH_CORES")
    if value and not (value.isdecimal() and int(value)):
        raise UserError(f"SAYWHICH_CORES = {value}: give a whole number of cores, 1 or more")
    return int(value or count_cores())


def count_requested_gpus() -> int:
    """Return the amount of the Snakemake resource `gpu` that each job of a cell requests.

    The amount is 1 where this machine has an NVIDIA GPU that CUDA_VISIBLE_DEVICES does not hide ("" or −1), else 0.
    """
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return int(not is_hidden and any(Path("/dev").glob("nvidia[0-9]*")))


def wait_for_other_snakemake() -> None:
    """Wait until no other Snakemake runs on this grid, whether in another terminal or left over after a kill."""
    SNAKEMAKE.mkdir(exist_ok=True)
    with open(ALIVE, "w", encoding="utf-8") as file, suppress(OSError):  # a file system without locks
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("sweep: another Snakemake is running this grid; waiting for its end", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)


def free_locks() -> TextIO | None:
    """Remove the locks of a killed Snakemake. No other Snakemake is alive if the lock on alive.lock is free.

    Only the main Snakemake process of the grid or of features.smk calls this function. The Snakemake processes of its
    jobs, which may outlive it, do not.

    The caller must keep the returned file as long as the process lives. Returns None if another Snakemake is running,
    or the file system has no locks.
    """
    SNAKEMAKE.mkdir(exist_ok=True)
    file = open(ALIVE, "w", encoding="utf-8")  # noqa: SIM115 (open as long as the process lives)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds the lock, or the file system has no locks
        file.close()
        return None
    shutil.rmtree(SNAKEMAKE / "locks", ignore_errors=True)
    return file


def _make_file_name_part(value: Any) -> str:
    """Return a value as a part of a file name."""
    if isinstance(value, Mapping):
        return "+".join(f"{key}-{_make_file_name_part(part)}" for key, part in value.items())
    return re.sub(r"[^\w.+-]", "_", value if isinstance(value, str) else json.dumps(value))


def main(arguments: Sequence[str]) -> int:
    """Run `gather FOLDER` for the grid of params.yaml; return the exit status of `run_command`."""

    def work() -> None:
        if len(arguments) != 2 or arguments[0] != "gather":
            raise UserError("usage: python -m pipeline.workflow.grid_cells gather FOLDER")
        gather_results(list_cells(read_checked_names()), Path(arguments[1]))

    return run_command("sweep", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
