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


def start_stage(world: Path, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `python -m stages.…` in `world`, with its output in the file `log`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with open(log, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", *words], cwd=world, env={**os.environ, **SETTINGS, "PATH": path},
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip


class ForkedStage:
    """A stage in a fork of this process, which has the imports: all of its time is the stage's own work."""

    def __init__(self, world: Path, words: Sequence[str], log: Path) -> None:
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
                sys.argv = list(words)
                runpy.run_module(words[0], run_name="__main__", alter_sys=True)
                status = 0
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def import_everything() -> None:
    """Import the packages of stages, so that forked processes have them."""
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
    """A stage with its options, and functions that return the digests of its outputs and remove them."""

    world: Path
    name: str
    words: tuple[str, ...]
    outputs: Callable[[], dict[str, str]]
    clear: Callable[[], None]


def make_work(world: Path, scratch: Path, name: str, options: Sequence[str] | None = None) -> StageWork:
    """Return a stage that writes to a folder of its own in `scratch`."""
    out = scratch / name
    given = STAGES[name] if options is None else options
    words = (f"stages.{name}", *given, "--out", str(out))
    return StageWork(world, name, words, partial(compute_digests, out), partial(shutil.rmtree, out, ignore_errors=True))


def make_grid_work(world: Path) -> StageWork:
    """Return the stage `sweep`, with Snakemake and all other processes that it starts."""
    data = world / "data"

    def digest_outputs() -> dict[str, str]:
        cells = compute_digests(data / "cells")
        made = {name: each for name, each in cells.items() if not name.endswith((".log", ".tsv", ".lock"))}
        return made | compute_digests(data / OUTPUT_FOLDERS["sweep"])

    def remove_outputs() -> None:
        for folder in (data / "cells", data / OUTPUT_FOLDERS["sweep"], data / "checkpoints"):
            shutil.rmtree(folder, ignore_errors=True)

    return StageWork(world, "sweep", ("stages.sweep",), digest_outputs, remove_outputs)


def interrupt(
    work: StageWork, requests: Sequence[signal.Signals], start: Start = start_stage, seed: int = 0
) -> Iterator[str]:
    """Send each request at a random instant of a stage, run the same command again, and yield its fault or "".

    A stage without fault has the outputs of an undisturbed run.
    """
    log = work.world / "data" / f"{work.name}.said"
    instants = random.Random(f"{work.name} {seed}")
    work.clear()
    began = time.monotonic()
    status = start(work.world, work.words, log).wait()
    seconds, whole = time.monotonic() - began, work.outputs()
    if status or not whole:
        raise RuntimeError(f"{work.name}: exit status {status} without a signal: {log.read_text()[-1000:]}")
    for request in requests:
        status = 0
        while status == 0:  # the stage ended before the signal
            work.clear()
            process = start(work.world, work.words, log)
            time.sleep(instants.uniform(0, seconds))
            os.kill(process.pid, request)
            status = process.wait()
            seconds *= 1 if status else 0.9
        yield _find_fault(work, request, status, log.read_text(), whole, start)
    work.clear()


def _find_fault(
    work: StageWork, request: signal.Signals, status: int, line: str, whole: dict[str, str], start: Start
) -> str:
    asked = request != signal.SIGKILL
    if status not in (-request, *([128 + request] if asked else [])):
        return f"{work.name}: exit status {status} after {request.name}: {line[-300:]}"
    if status == 128 + request and f"ended by {request.name}; the same command goes on from here" not in line:
        return f"{work.name}: {request.name}, but no message that the same command continues"
    if status == -request and asked and work.outputs() not in ({}, whole):  # the work had begun and had not ended
        return f"{work.name}: {request.name} ended the stage during its work without a message"
    log = work.world / "data" / f"{work.name}.again"
    if status := start(work.world, work.words, log).wait():
        return f"{work.name}: exit status {status} of the same command after {request.name}: {log.read_text()[-300:]}"
    found = work.outputs()
    if differ := sorted(name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name)):
        return f"{work.name}: after {request.name} other files: {', '.join(differ)}"
    return ""
