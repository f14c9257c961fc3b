"""The grid on a Slurm of this machine: overhead of a job, scaling with workers, and plans of large grids.

    python benchmarks/cluster.py [--seconds 5] [--cells 4] [--sizes 10 100 1000]

Each stage only waits, so that the speed of the cores does not matter. Slurm and Snakemake are real. They use
profiles/slurm, except for the number of parallel jobs, the resources of a job, and the seconds until Snakemake first
checks jobs. One-machine rows run the same cells without Slurm. The last column is the load of the processors by other
programs before each row.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from printing import begin_table, show_progress

ROOT = Path(__file__).parents[1]
WORKERS = (1, 2, 4)
PROJECT_FILES = ("Snakefile", "profiles", "docs/snakemake")
STAGE = """
import json, sys, time
from pathlib import Path
import pyarrow, pyarrow.parquet
options = dict(zip(sys.argv, sys.argv[1:]))
out = Path(options["--out"])
out.mkdir(parents=True, exist_ok=True)
time.sleep({seconds})
for name in {names}:
    (out / name).write_text(json.dumps({{"method": options["--method"], "settings": {{}}, "name": name}}))
if "evaluation" in str(out):
    pyarrow.parquet.write_table(pyarrow.table({{"caption": ["a"]}}), out / "captions.parquet")
"""
TRAINING_OUTPUTS = ("weights.safetensors", "history.jsonl", "metrics.json")


def make_grid(folder: Path, cells: int, seconds: float) -> None:
    """Create a workspace in `folder` with a grid of `cells` cells, whose stages only wait `seconds`."""
    for name in PROJECT_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / "pipeline").symlink_to(ROOT / "pipeline")
    for stage, names in (("train", TRAINING_OUTPUTS), ("adapt", TRAINING_OUTPUTS), ("evaluate", ("metrics.json",))):
        (folder / "stages").mkdir(exist_ok=True)
        (folder / f"stages/{stage}.py").write_text(STAGE.format(seconds=seconds, names=names))
    (folder / "stages/__init__.py").touch()
    (folder / "data").mkdir()
    (folder / "data/captions").write_text("a dog")
    stage_entry = {"cmd": "true", "params": ["seed", "methods.${key}"], "deps": ["data/captions"]}
    stages = {stage: {"foreach": "${methods}", "do": stage_entry} for stage in ("train", "adapt", "evaluate")}
    (folder / "dvc.yaml").write_text(json.dumps({"stages": stages}))
    values = [round(0.0001 * (n + 1), 4) for n in range(cells)]
    sweep = {"seeds": [1], "grid": {"luo": {"lambda": values}}}
    (folder / "params.yaml").write_text(json.dumps({"seed": 1, "methods": {"luo": {"from": "luo"}}, "sweep": sweep}))


def run_snakemake(folder: Path, *options: str, environment: dict[str, str]) -> tuple[float, float, float]:
    """Run Snakemake; return its seconds, its processor seconds, and the peak memory in GB of any child process so far.

    Raises SystemExit if Snakemake fails.
    """
    command = [sys.executable, "-m", "snakemake", *options]
    usage_before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise SystemExit(process.stderr[-2000:])
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime
    return time.monotonic() - began, processor, usage_after.ru_maxrss * 1024 / 1e9


def measure_plans(scratch: Path, sizes: list[int]) -> None:
    """Print the cost of planning grids of `sizes` cells, smallest first, since peak memory never falls."""
    print_row = begin_table("Planning a grid", "cells", "jobs", "processor, s", "ms a job", "memory, GB", first=8)
    for cells in sorted(sizes):
        show_progress(f"a plan of {cells} cells")
        make_grid(scratch / f"plan_{cells}", cells, 0.0)
        options = ("--cores", "1", "--dry-run", "--quiet", "all")
        _, processor, memory = run_snakemake(scratch / f"plan_{cells}", *options, environment={})
        jobs = 3 * cells + 1
        print_row(cells, jobs, f"{processor:.1f}", f"{1000 * processor / jobs:.1f}", f"{memory:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="seconds that each job waits")
    parser.add_argument("--cells", type=int, default=4)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[10, 100, 1000], help="numbers of cells of the planned grids"
    )
    parser.add_argument("--plans", action="store_true", help="only plan, without Slurm")
    options = parser.parse_args()
    if options.plans:
        with tempfile.TemporaryDirectory() as scratch:
            return measure_plans(Path(scratch), options.sizes)
    sys.path.append(str(ROOT / "tests/cluster"))
    from loopback import Slurm, find_missing

    if missing := find_missing():
        raise SystemExit(f"not installed: {', '.join(missing)}; see profiles/slurm/README.md")
    jobs, work = 3 * options.cells, 3 * options.cells * options.seconds
    title = f"{options.cells} cells of three jobs that wait {options.seconds:.0f} s each"
    columns = ("where", "workers", "s", "times faster", "of a job besides its work, s", "others' work before, %")
    print_row = begin_table(title, *columns, first=12)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Slurm must also stop on SIGTERM
    with tempfile.TemporaryDirectory() as scratch:
        slurm = Slurm(Path(scratch) / "slurm", nodes=1, cpus=max(WORKERS))
        slurm_options = [
            "--slurm-init-seconds-before-status-checks",
            "1",
            "--default-resources",
            "mem_mb=100",
            "runtime=60",
        ]
        slurm_options += ["--set-resources", *(f"{rule}:gpu=0" for rule in ("train", "adapt", "evaluate"))]
        try:
            slurm.start()
            for executor in ("one machine", "Slurm"):
                first_seconds = 0.0
                for workers in WORKERS:
                    show_progress(f"{executor}, {workers} workers")
                    folder = Path(scratch) / f"{executor} {workers}".replace(" ", "_")
                    make_grid(folder, options.cells, options.seconds)
                    arguments = ["--cores", str(workers)]
                    if executor == "Slurm":
                        arguments = ["--workflow-profile", "profiles/slurm", "--jobs", str(workers), *slurm_options]
                    load = psutil.cpu_percent(interval=3.0)
                    seconds, *_ = run_snakemake(folder, *arguments, environment=slurm.environment)
                    first_seconds = first_seconds or seconds
                    overhead = (seconds * workers - work) / jobs
                    print_row(
                        executor,
                        workers,
                        f"{seconds:.0f}",
                        f"{first_seconds / seconds:.2f}",
                        f"{overhead:.1f}",
                        f"{load:.0f}",
                    )
        finally:
            slurm.stop()
        measure_plans(Path(scratch), options.sizes)


if __name__ == "__main__":
    main()
