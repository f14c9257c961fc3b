"""The process tree of `make repro`, and requests to end the tree: signals, and the processes that receive them."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import psutil
import yaml
from dummy_stages import STAGES, write_workspace
from toy_world import list_run_stages
from whole_profiles import load_profile

ROOT = Path(__file__).parents[1]
BOUND = 10.0  # seconds until the whole tree must have ended
GROUP, KEYBOARD, HANG_UP = "group", "keyboard", "hang-up"  # signals to make's process group; Ctrl-C; a closed terminal
KINDS: dict[str, Callable[[list[str]], bool]] = {
    "make": lambda arguments: arguments[0] == "make",
    "repro": lambda arguments: "pipeline.workflow.repro" in arguments,
    "first": lambda arguments: arguments[0].endswith("python") and "pipeline.workflow.repro" in arguments,  # container
    "dvc": lambda arguments: "pipeline.workflow.run_dvc" in arguments,
    "sweep": lambda arguments: "stages.sweep" in arguments,
    "snakemake": lambda arguments: "snakemake" in arguments,
    "stage": lambda arguments: (
        arguments[0].endswith("python") and any(f"stages.{name}" in arguments for name in ("train", "draw"))
    ),
}
TRAIN = """
import os, sys, time
from pathlib import Path
from pipeline.runtime import signals
from pipeline.runtime.command import run_command
word = dict(zip(sys.argv, sys.argv[1:]))
out = Path(word.get("--out", f"data/models/{word['--method']}"))
saved = Path("data/checkpoints", out.parent.name + out.name)

def work():
    with open("began.txt", "a") as began:
        began.write(f"{time.time()} {os.getpid()} {out}\\n")
    steps = int(saved.read_text()) if saved.exists() else 0
    with signals.postpone_requests() as asked:
        while Path("long cells" if "--out" in word else "long trainings").exists():
            time.sleep(0.05)
            steps += 1
            if asked():
                saved.parent.mkdir(parents=True, exist_ok=True)
                saved.write_text(str(steps))
                return
    out.mkdir(parents=True, exist_ok=True)
    for name in ("weights.safetensors", "metrics.json"):
        (out / name).write_text(" ".join(sys.argv[1:]))
    (out / "history.jsonl").write_text('{"epoch": 1}\\n')

sys.exit(run_command("train", work))
"""
SWEEP = {"cmd": "python -m stages.sweep", "params": ["sweep"], "deps": ["data/models"], "outs": ["data/sweep"]}


def write_repository(folder: Path) -> None:
    """Write a repository with two trainings and a grid of three cells.

    Trainings run while the file `long trainings` exists, and cells while the file `long cells` exists.
    """
    write_workspace(folder, train=TRAIN)
    params = load_profile("scenes")
    params["methods"] = {name: params["methods"][name] for name in ("mle", "luo")}
    params["sweep"] = {"seeds": [1], "grid": {"luo": {"lambda": [0.5, 0.6, 0.7]}}}
    (folder / "params.yaml").write_text(json.dumps(params))
    stages = yaml.safe_load(STAGES)["stages"]
    for name in ("adapt", "evaluate"):
        stages[name] |= {"foreach": {"luo": {"from": "luo"}}}  # cells adapt and evaluate by themselves
        stages[name]["do"] |= {"cmd": "true", "outs": []}
    for stage in stages.values():
        stage["do"]["deps"] = ["data/prepared"]
    stages["train"]["do"] |= {"params": ["seed"]}
    (folder / "dvc.yaml").write_text(json.dumps({"stages": {**stages, "sweep": SWEEP}}))
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    shutil.copy(ROOT / "stages/sweep.py", folder / "stages")
    mark_installed(folder)
    (folder / "data/report").mkdir()
    (folder / "data/report/table.md").write_text("a table\n")


def mark_installed(folder: Path) -> None:
    """Mark a repository as installed, so that `make` installs nothing and runs the programs of PATH."""
    for name in ("Makefile", "pyproject.toml", "constraints-hashed.txt", "requirements-uv.txt"):
        shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").mkdir(exist_ok=True)
    (folder / ".venv/.installed").touch()


@dataclass
class ProcessTree:
    """The processes that `make repro` has started in `folder`; keys are written to `terminal`."""

    folder: Path
    make: subprocess.Popen[bytes]
    terminal: int | None = None

    def processes(self) -> list[psutil.Process]:
        """Return all living processes of the tree."""
        with suppress(psutil.Error):
            return [psutil.Process(self.make.pid), *psutil.Process(self.make.pid).children(recursive=True)]
        return []

    def find(self, kind: str) -> list[psutil.Process]:
        """Return the processes of one of KINDS, the oldest first."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error, IndexError):
                if KINDS[kind](process.cmdline()):
                    found.append(process)
        return sorted(found, key=lambda process: process.create_time())

    def wait_for(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready` returns True; fail if make ends, or after ten minutes."""
        deadline = time.monotonic() + 600
        while not ready():
            assert self.make.poll() is None, self.read_output()
            assert time.monotonic() < deadline, self.read_output()
            time.sleep(0.05)

    def read_output(self) -> str:
        return (self.folder / "printed.txt").read_text()

    def stop(self, kind: str, request: signal.Signals, bound: float = BOUND) -> list[psutil.Process]:
        """Send `request` to one process or to make's process group, or let the terminal send SIGINT or SIGHUP.

        Return the processes that are still alive after `bound` seconds.
        """
        tree = self.processes()
        if kind == KEYBOARD:
            assert self.terminal is not None
            os.write(self.terminal, b"\x03")
        elif kind == HANG_UP:
            self.close()
        elif kind == GROUP:
            os.killpg(self.make.pid, request)
        else:
            self.find(kind)[0].send_signal(request)
        deadline = time.monotonic() + bound
        while time.monotonic() < deadline and (self.make.poll() is None or any(map(_is_alive, tree))):
            time.sleep(0.05)
        return [process for process in tree if _is_alive(process)]

    def close(self) -> None:
        """Close the terminal, if there is one."""
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def list_begun_trainings(folder: Path) -> list[str]:
    """Return the folders of the trainings that have begun."""
    path = folder / "began.txt"
    return [line.split()[2] for line in path.read_text().splitlines()] if path.exists() else []


CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@contextmanager
def start_tree(
    folder: Path, nohup: bool = True, container: bool = False, terminal: bool = False
) -> Iterator[ProcessTree]:
    """Run `nohup make repro &` or `setsid make repro` in `folder`; end the whole tree after the block.

    With `container`, repro runs without make, as process 1 of its own namespace. With `terminal`, `make repro` runs in
    the foreground of a terminal.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MLFLOW_", "OMP_"))}
    environment = inherited | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "SAYWHICH_TRACKING": "off", "SAYWHICH_CORES": "2", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    master, stdin = os.openpty() if terminal else (None, subprocess.DEVNULL)
    prepare = _take_terminal if terminal else _ignore_sigint if nohup else None
    with open(folder / "printed.txt", "wb") as printed:
        command = [*(["nohup"] if nohup else []), "make", "repro", "PROFILE="]
        command = [*CONTAINER, sys.executable, "-m", "pipeline.workflow.repro"] if container else command
        make = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=printed,
            stderr=printed, stdin=stdin, start_new_session=True, preexec_fn=prepare,
        )  # fmt: skip
    if terminal:
        os.close(stdin)
    tree = ProcessTree(folder, make, master)
    try:
        yield tree
    finally:
        for process in tree.processes():
            with suppress(psutil.Error):
                process.kill()
        make.wait()
        tree.close()


def stop_repeatedly(world: Path, times: int, seed: int = 0) -> Iterator[str]:
    """Stop `make repro` in the toy world at random instants, and yield the fault of each stop or "".

    A stop has no fault if all processes end within BOUND, none starts afterwards, and make's status and lines are those
    of an ended run. The same command must then give the same outputs. SIGTERM, SIGINT and SIGHUP in turn go to the
    process group or to one process of a random kind.
    """
    mark_installed(world)
    random_ = random.Random(seed)
    began_at = time.monotonic()
    whole = _run_repro(world)
    seconds = time.monotonic() - began_at
    for request in islice(cycle((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)), times):
        problem = None
        while problem is None:  # None: the run ended before the stop
            _clear(world)
            problem = _stop(world, request, random_.uniform(0, seconds), random_)
        if not problem and (differences := whole.items() ^ _run_repro(world, clear=False).items()):
            names = ", ".join(sorted({name for name, _ in differences}))
            problem = f"{request.name}: other outputs than those of an undisturbed run: {names}"
        yield problem


def _stop(world: Path, request: signal.Signals, seconds: float, random_: random.Random) -> str | None:
    kind = GROUP if random_.random() < 0.4 else ""
    nohup = request == signal.SIGTERM or (request == signal.SIGINT and kind == GROUP)
    with start_tree(world, nohup) as running:
        try:
            running.make.wait(seconds)
            return None
        except subprocess.TimeoutExpired:
            kind = kind or random_.choice([each for each in KINDS if running.find(each)])
        try:
            alive = running.stop(kind, request)
        except IndexError:  # the process has just ended
            return None
        printed, status = running.read_output(), running.make.poll()
    in_folder = [each for each in psutil.process_iter() if _is_alive(each) and _read_folder(each) == str(world)]
    names = ", ".join(sorted({_read_name(each) for each in [*alive, *in_folder]}))
    description = f"{request.name} to {kind}"
    if status == 0:
        return None
    if names:
        return f"{description}: alive after {BOUND:.0f} s: {names}"
    if status not in (2, -request) or "Traceback" in printed:
        return f"{description}: status {status}: {printed[-200:]}"
    if printed.count("repro: ended by") != 1 and list_run_stages(printed):
        return f"{description}: expected one line about the ended run: {printed[-200:]}"
    return ""


def _run_repro(world: Path, clear: bool = True) -> dict[str, str]:
    """Run `make repro`, and return the digests of the outputs of DVC's stages.

    The report is left out, since one of its tables has processor seconds.
    """
    if clear:
        _clear(world)
    with start_tree(world) as running:
        if running.make.wait():
            return {"make repro failed": running.read_output()[-300:]}
    stages = yaml.safe_load((world / "dvc.lock").read_text())["stages"]
    return {
        out["path"]: out["md5"] for name, stage in stages.items() if name != "report" for out in stage.get("outs", ())
    }


def _clear(world: Path) -> None:
    for name in ("data", ".dvc/cache", ".dvc/tmp", ".snakemake"):
        shutil.rmtree(world / name, ignore_errors=True)
    (world / "dvc.lock").unlink(missing_ok=True)


def _read_name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return "a process that has ended since"


def _read_folder(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.cwd()
    return ""


def _ignore_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in commands that a shell without job control starts by `&`


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # keys send signals to the foreground, which is make's process group
