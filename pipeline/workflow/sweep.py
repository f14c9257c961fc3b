"""The grid: which cells there are, what each of them depends on, and their results in one place.

python -m pipeline.workflow.sweep gather FOLDER gathers the results of all cells of params.yaml in FOLDER,
python -m pipeline.workflow.sweep estimate says how long those will take that have none.
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
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pipeline.config.names import named_mapping
from pipeline.config.views import listed_deps, listed_keys
from pipeline.errors import UserError, reason
from pipeline.runtime.command import finish
from pipeline.runtime.files import atomic_path, digest, write_atomically
from pipeline.runtime.seal import check_captions, check_history, read_sealed_json, seal

CELLS = Path("data/cells")


@dataclass(frozen=True)
class Cell:
    """One training run of the grid, the listener that gets used to its speaker, and their evaluation."""

    method: str
    settings: Mapping[str, Any]  # options of the method's block
    seed: int

    @property
    def name(self) -> str:
        """Such as lambda=0.005_rho=0.25_seed=1; within a method it names the cell and its folder.

        It has no comma: Snakemake would take one for the next wildcard when it submits the cell to a cluster.
        """
        return "_".join(f"{key}={_word(value)}" for key, value in {**self.settings, "seed": self.seed}.items())

    @property
    def folder(self) -> Path:
        return CELLS / self.method / self.name

    @property
    def options(self) -> list[str]:
        """What the command line of its stages says: method, settings and seed."""
        keys = [f"methods.{self.method}.{key}={json.dumps(value)}" for key, value in self.settings.items()]
        return ["--method", self.method, *(part for key in keys for part in ("--set", key)), "--seed", str(self.seed)]


def cells(params: Mapping[str, Any]) -> list[Cell]:
    """All cells of `sweep` in a read params.yaml: for each grid of a method the product of its options' values and the
    seeds, its own or those of all.
    """
    sweep = params.get("sweep") or {}
    grid: list[Cell] = []
    for method, grids in (sweep.get("grid") or {}).items():
        if method not in (params.get("methods") or {}):
            raise UserError(f"params.yaml: sweep.grid.{method}: no such method under methods:; add it there")
        for options in grids if isinstance(grids, list) else [grids]:
            axes = {**(options or {})}
            axes["seed"] = axes.pop("seed", sweep.get("seeds") or [])
            for key, values in axes.items():
                if not isinstance(values, list) or not values:
                    raise UserError(
                        f"params.yaml: sweep.grid.{method}.{key}: must be a list of values, as in [0.1, 0.2]"
                    )
            for combination in itertools.product(*axes.values()):
                settings = dict(zip(axes, combination, strict=True))
                grid.append(Cell(method, settings, settings.pop("seed")))
    seen = set()
    for cell in grid:
        if cell.folder in seen:
            raise UserError(
                f"params.yaml: sweep: the cell {cell.method} {cell.name} is there twice; remove one of them"
            )
        seen.add(cell.folder)
    return grid


def digests(paths: Iterable[str]) -> dict[str, str]:
    """A digest of each file's content, or of a folder's names and contents; of what is not there, the word missing."""
    found = {}
    for path in set(paths):
        try:
            found[path] = digest(Path(path))
        except FileNotFoundError:
            found[path] = "missing"
    return found


def basis(
    cell: Cell, stage: str, params: Mapping[str, Any], content: Mapping[str, str], workflow: Mapping[str, Any]
) -> str:
    """A digest of what decides a cell's results: the parameters that dvc.yaml (`workflow`) lists for the stage, with
    the cell's own settings in their place, and the content of the stage's dependencies, as `digests` gives it.
    """
    tree = copy.deepcopy(dict(params))
    tree["seed"] = cell.seed
    tree["methods"][cell.method] = {**(tree["methods"][cell.method] or {}), **cell.settings}
    values = {key: _at(tree, key) for key in listed_keys(workflow, stage, cell.method, tree)}
    files = {path: content[path] for path in listed_deps(workflow, stage, params["methods"][cell.method] or {})}
    return hashlib.sha256(json.dumps([values, files], sort_keys=True).encode()).hexdigest()


def gather(grid: Sequence[Cell], out: Path) -> None:
    """Write the cells' metrics to `out`/cells.json, their captions, with columns that name the cell, to
    `out`/captions.parquet, and the epochs of their training to `out`/history.jsonl, in the order of `grid`; last the
    SHA-256 of these files.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    entries, tables, epochs = [], [], []
    for cell in grid:
        check_history(cell.folder / "weights.safetensors")
        for line in (cell.folder / "history.jsonl").read_text(encoding="utf-8").splitlines():
            epochs.append(json.dumps({"method": cell.method, "cell": cell.name, **json.loads(line)}))
        measured = cell.folder / "evaluation/metrics.json"
        again = f"delete {cell.folder} and run the grid again"
        metrics = read_sealed_json(measured, again)
        if (metrics.get("method"), metrics.get("settings", {}).get("seed")) != (cell.method, cell.seed):
            raise UserError(f"{measured}: is of another method or seed; {again}")
        check_captions(measured, metrics)
        settings = {**metrics.get("settings", {}), **cell.settings, "seed": cell.seed}
        entries.append({"cell": cell.name, **metrics, "settings": settings})
        captions = cell.folder / "evaluation/captions.parquet"
        try:
            table = pq.read_table(captions, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{captions}: cannot be read ({reason(error)}); delete it and run the grid again") from None
        named = {
            "method": pa.array([cell.method] * len(table), pa.string()),
            "cell": pa.array([cell.name] * len(table), pa.string()),
            "lambda": pa.array([settings.get("lambda")] * len(table), pa.float64()),
            "rho": pa.array([settings.get("rho")] * len(table), pa.float64()),
            "seed": pa.array([cell.seed] * len(table), pa.int64()),
        }
        tables.append(pa.table({**named, **{name: table[name] for name in table.column_names if name not in named}}))
    write_atomically(out / "history.jsonl", "".join(f"{line}\n" for line in epochs))
    with atomic_path(out / "captions.parquet") as temporary:
        pq.write_table(
            pa.concat_tables(tables, promote_options="default")
            if tables
            else pa.table({"cell": pa.array([], pa.string())}),
            temporary,
            write_page_checksum=True,
        )
    write_atomically(out / "cells.json", json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    seal(out)


def estimate(grid: Sequence[Cell], cores: int, seconds: float | None) -> str:
    """How many cells of `grid` have no results, and how long they will take on so many cores.

    It counts with the median time of the cells that ran here, or else with `seconds` a cell.
    """
    missing = [cell for cell in grid if not (cell.folder / "evaluation/metrics.json").exists()]
    said = f"{len(missing)} of {len(grid)} cells have no results"
    jobs = [[_seconds(cell.folder / f"{stage}.tsv") for stage in ("train", "adapt", "evaluate")] for cell in grid]
    times = [sum(known) for job in jobs if len(known := [time for time in job if time is not None]) == len(job)]
    each = statistics.median(times) if times else seconds  # cells that took a method's run needed no time
    if not missing or each is None:
        return said
    minutes = len(missing) * each / cores / 60
    length = f"{minutes:.0f} minutes" if minutes < 100 else f"{minutes / 60:.1f} hours"
    source = f"measured on {len(times)} cells here" if times else "as params.yaml says"
    return f"{said}: about {length} on {cores} cores, at {each:.0f} s per cell ({source})"


def _seconds(benchmark: Path) -> float | None:
    """The wall-clock time in a file of Snakemake's `benchmark:`; None where it is missing or not whole."""
    try:
        names, values = (line.split("\t") for line in benchmark.read_text(encoding="utf-8").splitlines()[:2])
        return float(dict(zip(names, values, strict=True))["s"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def cores() -> int:
    """How many cells run at once: SAYWHICH_CORES, by default as many as there are cores."""
    given = os.environ.get("SAYWHICH_CORES")
    if given and not (given.isdecimal() and int(given)):
        raise UserError(f"SAYWHICH_CORES = {given}: give a whole number of cores, 1 or more")
    return int(given or os.cpu_count() or 1)


def gpus() -> int:
    """What a training job asks for of the resource `gpu`: 1 where this machine has one, else 0."""
    return int(os.environ.get("CUDA_VISIBLE_DEVICES") != "" and any(Path("/dev").glob("nvidia[0-9]*")))


def wait_for_another(folder: Path = Path(".snakemake")) -> None:
    """Until no Snakemake is at work here: that of another terminal, or one that ends because its caller was killed."""
    folder.mkdir(exist_ok=True)
    with open(folder / "alive.lock", "w", encoding="utf-8") as file, suppress(OSError):  # of a file system without any
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("sweep: another Snakemake is at work on this grid; waiting until it has ended", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)


def free_locks(folder: Path = Path(".snakemake")) -> TextIO | None:
    """Remove the locks of a Snakemake that was killed: none is alive if the lock that each one takes here is free.

    For the Snakemake that has the grid, not for those that it starts for its jobs, which may outlive it.

    What is returned must be kept as long as the process lives; None: another Snakemake is at work.
    """
    folder.mkdir(exist_ok=True)
    file = open(folder / "alive.lock", "w", encoding="utf-8")  # noqa: SIM115 (for as long as the process lives)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another one's, or the file system has no locks
        file.close()
        return None
    shutil.rmtree(folder / "locks", ignore_errors=True)
    return file


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _word(value: Any) -> str:
    """A value as a part of a file name."""
    if isinstance(value, Mapping):
        return "+".join(f"{key}-{_word(inner)}" for key, inner in value.items())
    return re.sub(r"[^\w.+-]", "_", value if isinstance(value, str) else json.dumps(value))


def main(arguments: Sequence[str]) -> int:
    """`gather FOLDER` or `estimate`, for the grid of params.yaml; the exit status of `finish`."""

    def work() -> None:
        params = named_mapping()
        grid = cells(params)
        if len(arguments) == 2 and arguments[0] == "gather":
            gather(grid, Path(arguments[1]))
        elif list(arguments) == ["estimate"]:
            print(estimate(grid, cores(), params["sweep"].get("seconds")))
        else:
            raise UserError("usage: python -m pipeline.workflow.sweep gather FOLDER | estimate")

    return finish("sweep", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
