"""Stages of a toy world that are asked to end, or killed, at random instants and run again."""

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

from toy_world import digests_below

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


class Started(Protocol):
    """A started process."""

    pid: int

    def wait(self) -> int: ...


Start = Callable[[Path, Sequence[str], Path], Started]


def started(world: Path, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `python -m stages.…` in `world`, with its output in the file `said`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with open(log, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", *words], cwd=world, env={**os.environ, **SETTINGS, "PATH": path},
            stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip


class Forked:
    """The same, forked from this process after its imports: all of its time is the stage's own work."""

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
    """Import the packages of stages, so that forked processes have them; nothing of them runs."""
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
class Work:
    """A stage with its options, its outputs, and their removal."""

    world: Path
    name: str
    words: tuple[str, ...]
    outputs: Callable[[], dict[str, str]]
    clear: Callable[[], None]


def work_of(world: Path, scratch: Path, name: str, options: Sequence[str] | None = None) -> Work:
    """Return a stage that writes to a folder of its own in `scratch`."""
    out = scratch / name
    given = STAGES[name] if options is None else options
    words = (f"stages.{name}", *given, "--out", str(out))
    return Work(world, name, words, partial(digests_below, out), partial(shutil.rmtree, out, ignore_errors=True))


def grid(world: Path) -> Work:
    """Return the grid as work, with Snakemake, its cells and all other processes that it starts."""
    data = world / "data"

    def outputs() -> dict[str, str]:
        cells = digests_below(data / "cells")
        made = {name: each for name, each in cells.items() if not name.endswith((".log", ".tsv", ".lock"))}
        return made | digests_below(data / OUTPUT_FOLDERS["sweep"])

    def clear() -> None:
        for folder in (data / "cells", data / OUTPUT_FOLDERS["sweep"], data / "checkpoints"):
            shutil.rmtree(folder, ignore_errors=True)

    return Work(world, "sweep", ("stages.sweep",), outputs, clear)


def interrupted(work: Work, requests: Sequence[signal.Signals], start: Start = started, seed: int = 0) -> Iterator[str]:
    """Send each request at a random instant of a stage, run the same command again, and yield its fault or "".

    It has no fault where its outputs equal those of an undisturbed run.
    """
    log = work.world / "data" / f"{work.name}.said"
    instants = random.Random(f"{work.name} {seed}")
    work.clear()
    began = time.monotonic()
    status = start(work.world, work.words, log).wait()
    seconds, whole = time.monotonic() - began, work.outputs()
    if status or not whole:
        raise RuntimeError(f"{work.name}, undisturbed, ended with {status}: {log.read_text()[-1000:]}")
    for request in requests:
        status = 0
        while status == 0:  # it had ended before
            work.clear()
            process = start(work.world, work.words, log)
            time.sleep(instants.uniform(0, seconds))
            os.kill(process.pid, request)
            status = process.wait()
            seconds *= 1 if status else 0.9
        yield _problem(work, request, status, log.read_text(), whole, start)
    work.clear()


def _problem(work: Work, request: signal.Signals, status: int, line: str, whole: dict[str, str], start: Start) -> str:
    asked = request != signal.SIGKILL
    if status not in (-request, *([128 + request] if asked else [])):
        return f"{work.name}: {request.name} ended it with {status}: {line[-300:]}"
    if status == 128 + request and f"ended by {request.name}; the same command goes on from here" not in line:
        return f"{work.name}: {request.name}, and it did not say so"
    if status == -request and asked and work.outputs() not in ({}, whole):  # not before its work nor after it
        return f"{work.name}: {request.name}, and it had begun, and said nothing"
    log = work.world / "data" / f"{work.name}.again"
    if status := start(work.world, work.words, log).wait():
        return f"{work.name}: run again after {request.name} it ended with {status}: {log.read_text()[-300:]}"
    found = work.outputs()
    if differ := sorted(name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name)):
        return f"{work.name}: after {request.name} other files: {', '.join(differ)}"
    return ""
