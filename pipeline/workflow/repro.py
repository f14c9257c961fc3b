"""All of DVC's stages that are out of date, those that do not wait for each other side by side: `make repro`.

python -m pipeline.workflow.repro does what `dvc repro` does, with the same results, but for the ninth digit of a few
figures: PyTorch adds in another order with another number of threads. Each stage is one
`dvc repro --single-item`, which waits for the lock of DVC's repository and holds it only before and after the stage's
command. Instances of a foreach, and what they need, begin as soon as what they wait for is done; what comes behind
them, first of all the grid, which fills all cores by itself, is left to a plain `dvc repro`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from graphlib import TopologicalSorter
from pathlib import Path

from pipeline.config.names import named_mapping
from pipeline.config.reading import read_mapping
from pipeline.errors import UserError
from pipeline.metrics import shared_meteor
from pipeline.runtime import notice
from pipeline.runtime.command import fail
from pipeline.workflow.sweep import cores, gpus

LOCK, RWLOCK = Path("dvc.lock"), Path(".dvc/tmp/rwlock")
EVALUATION = Path("data/evaluation")


def stale() -> dict[str, set[str]] | None:
    """The stages that are out of date or behind one that is, each with those of them whose outputs it reads; None where
    DVC cannot say.
    """
    import networkx as nx
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            graph = nx.relabel_nodes(repo.index.graph, lambda stage: stage.addressing)  # from a stage to what it reads
            changed = set(repo.status()) & set(graph)
    except DvcException:
        return None
    found = changed.union(*(nx.ancestors(graph, stage) for stage in changed))
    return {stage: set(graph[stage]) & found for stage in graph if stage in found}


def check_annotations(params: Path = Path("params.yaml")) -> None:
    """Raise UserError where a file of captions is missing: sooner than DVC, which first hashes all images; and for
    a name that DVC is not to see.
    """
    settings = named_mapping(params)
    prepare = settings.get("prepare") or {}
    named = prepare.get("annotations") or ()
    files = [named] if isinstance(named, str) else list(named.values() if isinstance(named, Mapping) else named)
    if settings.get("draw"):  # they are written by the first stage
        return
    for file in (*files, *filter(None, [prepare.get("splits")])):
        if not (path := Path(prepare["root"], file)).is_file():
            raise UserError(
                f"{path}: the file of captions (prepare.annotations) is missing; the head of the profile says which "
                "files go where, and `make data` where to get those of the papers' corpora"
            )


def instances(waits: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Of these stages the instances of a foreach, and all that those wait for."""
    found: set[str] = set()
    new = {stage for stage in waits if "@" in stage}
    while new:
        found |= new
        new = set[str]().union(*(waits[stage] for stage in new)) - found
    return {stage: before for stage, before in waits.items() if stage in found}


class Jobs:
    """Processes of DVC, and what they share."""

    def __init__(self, asked: Callable[[], signal.Signals | None]) -> None:
        """`asked`: the request to end that this process has had, or None."""
        self._asked = asked
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._meteor: subprocess.Popen[str] | None = None

    def share_meteor(self) -> None:
        """Let all of them have one METEOR, which ends with this process."""
        self._meteor = shared_meteor.share(os.environ)

    def run(self, threads: int, *command: str) -> int:
        """The exit status of a `dvc` command, whose stages use so many threads, if nobody said otherwise."""
        name = f"dvc {' '.join(command)}"
        self._begin(name, threads, *command)
        return self._next()[name]

    def stages(self, waits: Mapping[str, set[str]], cores: int, at_once: int) -> bool:
        """Run stages, each when those that it waits for are done; whether all succeeded.

        What is at work beside one that fails is let end, and no other begins.
        """
        order = TopologicalSorter(waits)
        order.prepare()
        ready, failed = list(order.get_ready()), False
        while self._running or (ready and not failed):
            threads = max(1, cores // min(at_once, max(1, len(self._running) + len(ready))))
            while ready and not failed and len(self._running) < at_once:
                stage = ready.pop(0)
                self._begin(stage, threads, "--wait-for-lock", "repro", "--single-item", stage)
            for stage, status in self._next().items():
                failed = failed or status != 0
                order.done(stage)
            ready += order.get_ready()
        return not failed

    def end(self) -> list[str]:
        """End all that is at work, and return its names."""
        notice.end_below()
        return sorted(self._running)

    def _begin(self, name: str, threads: int, *command: str) -> None:
        environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
        words = [sys.executable, "-m", "pipeline.workflow.run_dvc", *command]
        self._running[name] = subprocess.Popen(words, env=environment, process_group=0)

    def _next(self) -> dict[str, int]:
        """The exit statuses of what has ended, which is waited for; raises Stopped for a request to end."""
        while True:
            found = {name: status for name, process in self._running.items() if (status := process.poll()) is not None}
            request = self._asked() or next(filter(None, map(notice.request_of, found.values())), None)
            if request:
                raise notice.Stopped(request)
            if found:
                for name in found:
                    del self._running[name]
                return found
            time.sleep(0.05)


def keep_private(folder: Path = RWLOCK.parent) -> None:
    """Close DVC's folder to other users: DVC unpickles what lies in its caches there, and lets everybody write."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def heal() -> None:
    """Remove files of DVC that a kill left half written: DVC would refuse to read them ever after."""
    from dvc.rwlock import SCHEMA
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from voluptuous import Invalid

    for path, schema in ((LOCK, COMPILED_LOCKFILE_SCHEMA), (RWLOCK, SCHEMA)):
        if not path.exists():
            continue
        empty = not path.stat().st_size
        with suppress(UserError, Invalid):
            if not empty:
                schema(read_mapping(path))
                continue
        state = "empty" if empty else "cut"
        print(f"{path} is {state}, as a kill leaves it: removed; what was computed comes from DVC's cache")
        path.unlink(missing_ok=True)


def repeat(jobs: Jobs) -> int:
    """Run all stages that are out of date; DVC's exit status."""
    with notice.heeded():  # DVC hashes all data in this process
        check_annotations()
        waits = stale()
    if waits is None:  # dvc repro has words for it
        return jobs.run(cores(), "repro")
    if not waits:
        print("Data and pipelines are up to date.")
        return 0
    jobs.share_meteor()
    if not jobs.stages(instances(waits), cores(), 1 if gpus() else cores()):
        return 1
    return jobs.run(cores(), "--wait-for-lock", "repro")


def compare(jobs: Jobs) -> int:
    """Run the grid, and what is made of it alone: evaluations of single runs are set aside meanwhile."""
    check_annotations()
    aside = EVALUATION.with_suffix(".aside")
    _put_back(aside)  # a kill left it there
    if EVALUATION.exists():
        EVALUATION.rename(aside)
    try:
        EVALUATION.mkdir(parents=True)
        Path("data/models").mkdir(exist_ok=True)
        return jobs.run(cores(), "repro", "sweep") or jobs.run(cores(), "repro", "--single-item", "cross", "report")
    except notice.Stopped:
        jobs.end()
        raise
    finally:
        _put_back(aside)


def _put_back(aside: Path) -> None:
    if aside.exists():
        shutil.rmtree(EVALUATION, ignore_errors=True)
        aside.rename(EVALUATION)


def main(arguments: Sequence[str] = ()) -> int:
    """The exit status: 0, DVC's own, 2 for a mistake of the user, or 128 + signal after a request to end."""
    if list(arguments) not in ([], ["--grid"]):
        print("usage: python -m pipeline.workflow.repro [--grid]", file=sys.stderr)
        return 2
    notice.adopt()
    with notice.noted() as asked:
        jobs = Jobs(asked)
        try:
            keep_private()
            heal()
            return compare(jobs) if arguments else repeat(jobs)
        except notice.Stopped as stopped:
            ended = ", ".join(jobs.end()) or "nothing was at work"
            print(f"repro: ended by {stopped} ({ended}); the same command goes on from here", file=sys.stderr)
            return 128 + stopped.request
        except (UserError, OSError) as error:
            jobs.end()
            return fail("repro", error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
