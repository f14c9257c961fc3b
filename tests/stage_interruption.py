"""Stages of a toy world that get a signal at a random instant and run again."""

import os
import pkgutil
import random
import runpy
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from toy_world import compute_digests

import pipeline
from pipeline.workflow.stage import OUTPUT_FOLDERS

STAGES = {
    "draw": ("--dataset", "scenes"),
    "prepare": (),
    "features": ("--features", "judge"),
    "pretrain": ("--role", "listener"),
    "train": ("--method", "psst_multinomial", "--set", "train.optimisation.epochs=10"),
    "adapt": ("--method", "luo", "--set", "adapt.optimisation.epochs=10"),
    "evaluate": ("--method", "luo"),
    "cross": (),
    "report": (),
}
SETTINGS = {"SAYWHICH_TRACKING": "off", "SAYWHICH_CHECKPOINT_SECONDS": "0", "OMP_NUM_THREADS": "1"}


class StageProcess(Protocol):
    """A process that runs a stage."""

    pid: int

    def wait(self) -> int: ...


Start = Callable[[Path, Sequence[str], Path], StageProcess]


def start_stage(world: Path, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `python -m stages.…` in `world`, with its output in the file `log`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with open(log, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=world, env={**os.environ, **SETTINGS, "PATH": path},
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip


class ForkedStage:
    """A stage in a fork of this process, without imports of its own: all of its time is the stage's work."""

    def __init__(self, world: Path, arguments: Sequence[str], log: Path) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                with open(log, "wb") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.chdir(world)
                os.environ.update(SETTINGS)
                sys.argv = list(arguments)
                runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
                status = 0
            except SystemExit as error:
                status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def import_everything() -> None:
    """Import all modules of `pipeline`, and the packages that they import late, so that forked processes have them."""
    for module in pkgutil.walk_packages(pipeline.__path__, "pipeline."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):
                import_module(module.name)
    for name in (
        "torch._dynamo",
        "pyarrow.parquet",
        "pyarrow.dataset",
        "safetensors.torch",
        "h5py",
        "PIL.Image",
        "scipy",
    ):
        import_module(name)


@dataclass(frozen=True)
class StageWork:
    """A stage with its options, and functions that return the digests of its outputs and remove its outputs."""

    world: Path
    name: str
    arguments: tuple[str, ...]
    outputs: Callable[[], dict[str, str]]
    clear: Callable[[], None]


def make_work(world: Path, scratch: Path, name: str) -> StageWork:
    """Return a stage that writes to a folder of its own in `scratch`."""
    out = scratch / name
    arguments = (f"stages.{name}", *STAGES[name], "--out", str(out))
    clear = partial(shutil.rmtree, out, ignore_errors=True)
    return StageWork(world, name, arguments, partial(compute_digests, out), clear)


def make_grid_work(world: Path) -> StageWork:
    """Return the stage `sweep`, with Snakemake and all other processes that it starts."""
    data = world / "data"

    def digest_outputs() -> dict[str, str]:
        digests = compute_digests(data / "cells")
        outputs = {name: digest for name, digest in digests.items() if not name.endswith((".log", ".tsv", ".lock"))}
        return outputs | compute_digests(data / OUTPUT_FOLDERS["sweep"])

    def remove_outputs() -> None:
        for folder in (data / "cells", data / OUTPUT_FOLDERS["sweep"], data / "checkpoints"):
            shutil.rmtree(folder, ignore_errors=True)

    return StageWork(world, "sweep", ("stages.sweep",), digest_outputs, remove_outputs)


def interrupt(
    work: StageWork, signals: Sequence[signal.Signals], start: Start = start_stage, seed: int = 0
) -> Iterator[str]:
    """Send each signal at a random instant of a stage, run the same command again, and yield a fault or "".

    A stage without fault has the outputs of an undisturbed run.
    """
    log = work.world / "data" / f"{work.name}.log"
    instants = random.Random(f"{work.name} {seed}")
    work.clear()
    began = time.monotonic()
    status = start(work.world, work.arguments, log).wait()
    seconds, expected = time.monotonic() - began, work.outputs()
    if status or not expected:
        raise RuntimeError(f"{work.name}: exit status {status} without a signal: {log.read_text()[-1000:]}")
    for number in signals:
        status = 0
        while status == 0:  # the stage ended before the signal
            work.clear()
            process = start(work.world, work.arguments, log)
            time.sleep(instants.uniform(0, seconds))
            os.kill(process.pid, number)
            status = process.wait()
            seconds *= 1 if status else 0.9
        yield _find_fault(work, number, status, log.read_text(), expected, start)
    work.clear()


def _find_fault(
    work: StageWork, number: signal.Signals, status: int, output: str, expected: dict[str, str], start: Start
) -> str:
    has_handler = number != signal.SIGKILL
    if status not in (-number, *([128 + number] if has_handler else [])):
        return f"{work.name}: exit status {status} after {number.name}: {output[-300:]}"
    if status == 128 + number and f"ended by {number.name}; run the same command to continue" not in output:
        return f"{work.name}: {number.name}, but no message that the same command continues"
    if status == -number and has_handler and work.outputs() not in ({}, expected):  # the work had begun and not ended
        return f"{work.name}: {number.name} ended the stage during its work without a message"
    log = work.world / "data" / f"{work.name}.second.log"
    if status := start(work.world, work.arguments, log).wait():
        return f"{work.name}: exit status {status} of the same command after {number.name}: {log.read_text()[-300:]}"
    outputs = work.outputs()
    if names := sorted(name for name in outputs.keys() | expected.keys() if outputs.get(name) != expected.get(name)):
        return f"{work.name}: after {number.name} other files: {', '.join(names)}"
    return ""
