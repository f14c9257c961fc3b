"""Seconds from a stage's command to its first batch, and of an idle `dvc repro`, compared with `import torch`.

    python benchmarks/start.py

The benchmark runs in a temporary copy of the workflow with few drawn images, after one complete run (a minute or two).
The first batch is the first one of a training or an evaluation, or the first image that `features` opens. For other
stages it is the start of their MLflow record, after the digests of their inputs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from printing import begin_table, show_progress

ROOT = Path(__file__).resolve().parents[1]
STAGES = {  # command line → module and function whose first call or result is the first batch
    "pretrain --role listener": "pipeline.data.batches.read_batch",
    "pretrain --role speaker": "pipeline.data.batches.read_batch",
    "train --method psst_multinomial": "pipeline.data.batches.read_batch",
    "adapt --method psst_multinomial": "pipeline.data.batches.read_batch",
    "evaluate --method psst_multinomial": "pipeline.data.batches.read_batch",
    "features": "pipeline.features.images.open_image",
    "draw --dataset scenes": "pipeline.tracking.recorder.record_run",
    "prepare": "pipeline.tracking.recorder.record_run",
    "sweep": "pipeline.tracking.recorder.record_run",
    "cross": "pipeline.tracking.recorder.record_run",
    "report": "pipeline.tracking.recorder.record_run",
}
# This program imports no module of the project before the stage does. It wraps the watched function when Python loads
# its module.
PROGRAM = """
import importlib.util, os, runpy, sys
name, _, function = sys.argv[1].rpartition(".")
class Finder:
    def find_spec(self, fullname, path, target=None):
        if fullname != name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def load_and_wrap(module):
            load(module)
            original = getattr(module, function)
            def end_at_first_batch(*arguments, **options):
                if name != "pipeline.tracking.recorder":
                    original(*arguments, **options)
                print("first batch", flush=True)
                os._exit(0)
            setattr(module, function, end_at_first_batch)
        spec.loader.exec_module = load_and_wrap
        return spec
sys.meta_path.insert(0, Finder())
sys.argv = sys.argv[2:]
runpy.run_module(f"stages.{sys.argv[0]}", run_name="__main__", alter_sys=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=60, help="scenes that are drawn")
    parser.add_argument("--times", type=int, default=3, help="repetitions, of which the fastest counts")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="saywhich-start-") as temporary:
        folder = Path(temporary)
        _create_workflow(folder, options.images)
        show_progress("the whole workflow once, a minute or two")
        _run(folder, "dvc", "repro", "--quiet")
        show_progress("import torch")
        torch_seconds, torch_cpu = _measure_fastest(options.times, folder, sys.executable, "-c", "import torch")
        print_row = begin_table(
            "From the command to the first batch", "command", "s", "CPU s", "CPU s / import torch", first=36
        )

        def print_times(command: str, spent: tuple[float, float]) -> None:
            print_row(command, f"{spent[0]:.2f}", f"{spent[1]:.2f}", f"{spent[1] / torch_cpu:.1f}")

        print_times("import torch", (torch_seconds, torch_cpu))
        for stage, function in STAGES.items():
            show_progress(stage)
            command = (sys.executable, "-c", PROGRAM, function, *stage.split(), "--out", "elsewhere")
            print_times(stage, _measure_fastest(options.times, folder, *command, expected_output="first batch"))
        show_progress("dvc repro")
        print_times(
            "dvc repro with nothing to do",
            _measure_fastest(options.times, folder, "dvc", "repro", expected_output="up to date"),
        )


def _create_workflow(folder: Path, images: int) -> None:
    """Create a repository with the scenes profile, reduced to few small images, single epochs and two methods."""
    sys.path.append(str(ROOT / "tests"))
    from toy_world import commit_all, write_repository
    from whole_profiles import load_profile

    params = load_profile("scenes")
    params["draw"]["scenes"] |= {"images": images, "size": 64, "val": images // 5, "test": images // 5}
    params["prepare"]["min_count"] = 1
    params["features"]["main"]["detector"] |= {"epochs": 1, "width": 4}
    for section in (*params["pretrain"].values(), params["train"], params["adapt"]):
        section["optimisation"] |= {"epochs": 1, "validate_every": 1}
    params["evaluate"]["metrics"] = ["BLEU", "CIDEr"]
    params["methods"] = {name: params["methods"][name] for name in ("mle", "psst_multinomial")}
    params["sweep"]["grid"] = {"psst_multinomial": {"lambda": [0.01]}}
    params["report"]["frozen_speakers"] = ["mle"]
    write_repository(folder, params)
    commit_all(folder)


def _measure_fastest(times: int, folder: Path, *command: str, expected_output: str = "") -> tuple[float, float]:
    """Return the smallest seconds and CPU seconds of a command over `times` runs."""
    seconds, cpu = zip(*(_run(folder, *command, expected_output=expected_output) for _ in range(times)), strict=True)
    return min(seconds), min(cpu)


def _run(folder: Path, *command: str, expected_output: str = "") -> tuple[float, float]:
    """Run a command, whose output must contain `expected_output`; return its seconds and CPU seconds.

    Raises SystemExit where the command fails or its output lacks that text.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    began, cpu_before = time.perf_counter(), sum(os.times()[2:4])
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    spent = time.perf_counter() - began, sum(os.times()[2:4]) - cpu_before
    if process.returncode or expected_output not in process.stdout:
        sys.exit(f"{' '.join(command[:2])}\n{process.stdout[-2000:]}\n{process.stderr[-2000:]}")
    return spent


if __name__ == "__main__":
    main()
