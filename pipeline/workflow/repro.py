"""All of DVC's stages that are out of date, those that do not wait for each other side by side: `make repro`.

python -m pipeline.workflow.repro does what `dvc repro` does, with the same results, but for the ninth digit of a few
figures: PyTorch adds in another order with another number of threads. Each stage is one
`dvc repro --single-item`, which waits for the lock of DVC's repository and holds it only before and after the stage's
command. Instances of a foreach, and what they need, begin as soon as what they wait for is done; what comes behind
them, first of all the grid, which fills all cores by itself, is left to a plain `dvc repro`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from graphlib import TopologicalSorter
from pathlib import Path

from pipeline.config.names import named_mapping
from pipeline.errors import UserError
from pipeline.metrics import shared_meteor
from pipeline.workflow.sweep import cores, gpus

LOCK = Path("dvc.lock")


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

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._meteor: subprocess.Popen[str] | None = None

    def share_meteor(self) -> None:
        """Let all of them have one METEOR, which ends with this process."""
        self._meteor = shared_meteor.share(os.environ)

    def run(self, threads: int, *command: str) -> int:
        """The exit status of a `dvc` command, whose stages use so many threads, if nobody said otherwise."""
        environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
        with subprocess.Popen([sys.executable, "-m", "dvc", *command], env=environment, process_group=0) as process:
            self._running.add(process)
            status = process.wait()
        self._running.discard(process)
        return status

    def interrupt(self) -> None:
        """End all of them, and what they started, as Ctrl-C does, and wait until they have."""
        running = tuple(self._running)
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        for process in running:
            process.wait()

    def stages(self, waits: Mapping[str, set[str]], cores: int, at_once: int) -> bool:
        """Run stages, each when those that it waits for are done; whether all succeeded.

        What is at work beside one that fails is let end, and no other begins.
        """
        order = TopologicalSorter(waits)
        order.prepare()
        at_work: dict[Future[int], str] = {}
        with ThreadPoolExecutor(at_once) as pool:
            try:
                while order.is_active():
                    ready = order.get_ready()
                    threads = max(1, cores // min(at_once, len(at_work) + len(ready)))
                    for stage in ready:
                        command = ("--wait-for-lock", "repro", "--single-item", stage)
                        at_work[pool.submit(self.run, threads, *command)] = stage
                    for future in wait(at_work, return_when=FIRST_COMPLETED).done:
                        if future.result():
                            pool.shutdown(cancel_futures=True)
                            return False
                        order.done(at_work.pop(future))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.interrupt()
                raise
        return True


def main() -> int:
    """The exit status: 0, DVC's own, or 130 after Ctrl-C or a request to end."""
    jobs = Jobs()
    for request in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(request, signal.default_int_handler)
    try:
        if LOCK.exists() and not LOCK.stat().st_size:
            print(f"{LOCK} is empty, as a kill leaves it: removed; what was computed comes from DVC's cache")
            LOCK.unlink()
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
    except KeyboardInterrupt:
        jobs.interrupt()
        return 130
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
