"""Time estimate of params.yaml's grid on several machines, from times of jobs here or `sweep.seconds_per_cell`.

python -m pipeline.workflow.estimate --machines 4 --cores 16 --memory 64

Where a method trains a captioner of the hub, the command also calculates the memory and time of a step on a GPU.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pipeline.config.name_checks import find_value, read_checked_names
from pipeline.config.reading import show_value
from pipeline.errors import UserError
from pipeline.runtime.command import run_command
from pipeline.workflow.grid_cells import CELL_STAGES, GridCell, count_parallel_cells, list_cells

PARAMS = Path("params.yaml")


@dataclass(frozen=True)
class JobCost:
    """Cost of one job of a stage: median seconds and largest memory (GB) over `jobs` finished jobs."""

    seconds: float
    gigabytes: float
    jobs: int


def read_costs(grid: Sequence[GridCell]) -> list[JobCost] | None:
    """Return the costs of the jobs in CELL_STAGES, from Snakemake's `benchmark:` files; None where a stage never ran.

    A cell that trained for less than a hundredth of the longest training reused an equal run, and is not counted.
    """
    rows_by_stage = {stage: [_read_row(cell.folder / f"{stage}.tsv") for cell in grid] for stage in CELL_STAGES}
    longest = max((row[0] for row in rows_by_stage["train"] if row), default=0.0)
    full_runs = [n for n, row in enumerate(rows_by_stage["train"]) if row and row[0] >= longest / 100]
    result = []
    for stage in CELL_STAGES:
        rows = [row for n in full_runs if (row := rows_by_stage[stage][n])]
        if not rows:
            return None
        seconds, gigabytes = zip(*rows, strict=True)
        result.append(JobCost(statistics.median(seconds), max(gigabytes), len(rows)))
    return result


def compute_makespan(chains: int, seconds: Sequence[float], slots: int, overhead: float = 0.0) -> float:
    """Return the seconds until `chains` chains of jobs are done, with at most `slots` jobs at once.

    Job n of every chain takes `seconds[n]`, plus `overhead`. A job starts when its predecessor in the chain is done
    and a slot is free. The job that has waited longest starts first.
    """
    order = count()
    queue = [(0.0, next(order), 0) for _ in range(chains)]  # earliest start, queue position, job number in its chain
    free_times = [0.0] * slots
    end = 0.0
    while queue:
        ready, _, job = heapq.heappop(queue)
        job_end = max(ready, heapq.heappop(free_times)) + overhead + seconds[job]
        heapq.heappush(free_times, job_end)
        if job + 1 < len(seconds):
            heapq.heappush(queue, (job_end, next(order), job + 1))
        end = max(end, job_end)
    return end


def estimate_grid(
    grid: Sequence[GridCell], machines: int, cores: int, memory: float | None, overhead: float, seconds: float | None
) -> str:
    """Return the text that `make estimate` prints for the cells without results.

    `seconds` is the time of a cell, used where no cell has run here. `memory` is the memory of one machine in GB;
    None: memory sets no limit. `overhead` is in seconds per job.

    Raises UserError where a job's memory does not fit in a machine.
    """
    missing_cells = sum(not (cell.folder / "evaluation/metrics.json").exists() for cell in grid)
    costs, lines = read_costs(grid), [f"{missing_cells} of {len(grid)} cells have no results"]
    if costs is None and seconds is None:
        return (
            f"{lines[0]}; the time of a cell is unknown: run one (snakemake --cores 1 …), or set "
            "sweep.seconds_per_cell in params.yaml"
        )
    # where no cell has run, the time of a cell is divided equally among its jobs
    jobs = len(CELL_STAGES)
    job_seconds = [cost.seconds for cost in costs] if costs else [float(seconds or 0) / jobs] * jobs
    largest = max(cost.gigabytes for cost in costs) if costs else 0.0
    jobs_in_memory = int(memory / largest) if memory and largest else cores
    if not jobs_in_memory:
        raise UserError(
            f"a job took {largest:.1f} GB of memory, which does not fit in the {memory:.1f} GB of a machine; "
            "raise --memory"
        )
    slots = machines * min(cores, jobs_in_memory)
    if costs:
        parts = (f"{stage} {cost.seconds:.0f} s" for stage, cost in zip(CELL_STAGES, costs, strict=True))
        lines.append(
            f"finished cells measured here: {costs[0].jobs}; medians: {', '.join(parts)}; at most {largest:.1f} GB"
        )
    else:
        lines.append(f"sweep.seconds_per_cell in params.yaml: {sum(job_seconds):.0f} s a cell")
    total = compute_makespan(missing_cells, job_seconds, slots, overhead)
    work = missing_cells * sum(job_seconds)
    limit = " (by memory)" if jobs_in_memory < cores else ""
    cell_seconds = sum(job_seconds) + overhead * len(job_seconds)
    lines += [
        f"{machines} machines, {slots} jobs at once{limit}: {_format_duration(total)}",
        f"work {_format_duration(work)} of one core; a cell alone {_format_duration(cell_seconds)}",
    ]
    if total:
        lines[-1] += f"; {work / total / slots:.0%} of the slots' time is work"
    return "\n".join(lines)


def _read_row(benchmark: Path) -> tuple[float, float] | None:
    """Return seconds and gigabytes of a job; None where the file is missing or incomplete."""
    try:
        row = next(csv.DictReader(benchmark.read_text(encoding="utf-8").splitlines(), delimiter="\t"))
        peak = row["max_rss"]  # MiB; Snakemake writes a dash or nothing for an unmeasured value
        return float(row["s"]), float(peak) * 2**20 / 1e9 if peak and peak[0].isdigit() else 0.0
    except (FileNotFoundError, StopIteration, KeyError, TypeError, ValueError):
        return None


def _format_duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the estimate for params.yaml in the working folder; return the exit status of `run_command`."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.workflow.estimate", allow_abbrev=False)
    parser.add_argument("--machines", type=int, default=1)
    parser.add_argument(
        "--cores", type=int, help="cores of one machine; for GPUs: jobs at once (default: SAYWHICH_CORES, or all)"
    )
    parser.add_argument("--memory", type=float, help="memory of one machine, in gigabytes")
    parser.add_argument("--overhead", type=float, default=0.0, help="additional seconds per job (BENCHMARKS.md)")
    parser.add_argument(
        "--gpu-memory", type=float, default=8.0, help="memory of the GPU for captioners of the hub, in gigabytes"
    )
    parser.add_argument("--teraflops", type=float, default=5.0, help="speed of the GPU in float32, in TFLOP/s")
    parser.add_argument(
        "--bandwidth", type=float, default=200.0, help="bandwidth of the GPU's memory, in gigabytes per second"
    )
    options = parser.parse_args(arguments)

    def work() -> None:
        params = read_checked_names()
        if any(isinstance(block, dict) and block.get("model") for block in (params.get("pretrain") or {}).values()):
            from pipeline.config.load import load  # needed for captioners of the hub only
            from pipeline.workflow.captioner_costs import describe_costs

            if lines := describe_costs(load(PARAMS), options.gpu_memory, options.teraflops, options.bandwidth):
                print(*lines, sep="\n")
            if not list_cells(params):
                return
        parallel_jobs = count_parallel_cells() if options.cores is None else options.cores
        if min(options.machines, parallel_jobs) < 1:
            raise UserError(
                f"--machines and --cores: expected whole numbers, 1 or more, got {options.machines} and {parallel_jobs}"
            )
        if options.memory is not None and not 0 < options.memory < math.inf:
            raise UserError(f"--memory {options.memory:g}: a number of gigabytes above 0 is expected")
        if not 0 <= options.overhead < math.inf:
            raise UserError(f"--overhead {options.overhead:g}: a number of seconds, 0 or more, is expected")
        grid = list_cells(params)
        seconds = find_value(params, "sweep.seconds_per_cell")
        if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds < math.inf):
            raise UserError(f"params.yaml: sweep.seconds_per_cell: {show_value(seconds)} is no number above 0")
        print(estimate_grid(grid, options.machines, parallel_jobs, options.memory, options.overhead, seconds))

    return run_command("estimate", work)


if __name__ == "__main__":
    sys.exit(main())
