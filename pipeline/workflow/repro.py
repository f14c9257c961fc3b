"""Execution of all outdated DVC stages, independent ones in parallel: `make repro`.

`python -m pipeline.workflow.repro` gives the results of `dvc repro`, except for the ninth digit of a few figures.
The order of PyTorch's sums depends on the number of threads. Each stage is one `dvc repro --single-item`, which waits
for the lock of DVC's repository. DVC holds that lock only before and after the stage's command. A stage starts as soon
as its dependencies are done. A grid with cells uses all cores itself, so it starts after the instances of foreach
stages.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from voluptuous import Invalid

from pipeline.config.name_checks import CHECKED, DECODING_KEYS, find_value, read_checked_names
from pipeline.config.overlays import identify_profile
from pipeline.config.reading import read_mapping
from pipeline.errors import UserError
from pipeline.metrics import shared_meteor
from pipeline.runtime import signals
from pipeline.runtime.command import USER_ERROR, report_failure
from pipeline.runtime.files import compute_digest
from pipeline.tracking.recorder import PROFILE
from pipeline.workflow import unchanged
from pipeline.workflow.grid_cells import count_parallel_cells, count_requested_gpus, list_cells
from pipeline.workflow.progress import Progress, add_grid_cost, read_recorded_costs

LOCK, RWLOCK, PARAMS = Path("dvc.lock"), Path(".dvc/tmp/rwlock"), Path("params.yaml")
VALIDATE, GRID = "validate", "sweep"
VALIDATE_CODE = Path("stages/validate.py")
UP_TO_DATE = "Data and pipelines are up to date."  # DVC's message


def find_stale_stages() -> dict[str, set[str]] | None:
    """Return the outdated stages and all stages that depend on them, each with its inputs among these stages.

    Returns None where DVC cannot read the repository. If nothing is outdated and all files are local, the record of
    unchanged.py is written.
    """
    import networkx as nx
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            # edges go from a stage to its inputs
            graph = nx.relabel_nodes(repo.index.graph, lambda stage: stage.addressing)
            files = [file for stage in repo.index.stages for file in (*stage.deps, *stage.outs)]
            paths = {os.path.relpath(file.fs_path) for file in files if file.protocol == "local"}
            state = None
            with suppress(OSError):  # an input has a link to a folder: no record is written, and DVC always decides
                state = unchanged.hash_state(paths)
            changed = set(repo.status()) & set(graph)
            if state and not changed and all(file.protocol == "local" for file in files):
                unchanged.write_record(paths, state)
    except DvcException:
        return None
    outdated = changed.union(*(nx.ancestors(graph, stage) for stage in changed))
    return {stage: set(graph[stage]) & outdated for stage in graph if stage in outdated}


def has_checked_parameters() -> bool:
    """Return whether the stage validate has succeeded with this params.yaml, or does not exist."""
    if not VALIDATE_CODE.is_file():
        return True
    inputs = (find_value(read_mapping(LOCK), f"stages.{VALIDATE}.deps") if LOCK.is_file() else None) or ()
    digests = {dependency["path"]: dependency.get("md5") for dependency in inputs}
    return PARAMS.is_file() and digests.get(str(PARAMS)) == hashlib.md5(PARAMS.read_bytes()).hexdigest()


def check_annotations() -> None:
    """Raise UserError for a missing file of captions or splits, or a forbidden name, before DVC hashes all images."""
    settings = read_checked_names(PARAMS)
    prepare = settings.get("prepare") or {}
    annotations = prepare.get("annotations") or ()
    annotations = annotations.values() if isinstance(annotations, Mapping) else annotations
    files = [annotations] if isinstance(annotations, str) else list(annotations)
    if settings.get("draw"):  # the draw stage writes the annotations
        return
    for file in (*files, *filter(None, [prepare.get("splits")])):
        if not (path := Path(prepare["root"], file)).is_file():
            raise UserError(
                f"{path}: the file of captions (prepare.annotations) or splits (prepare.splits) is missing; the head "
                "of the profile lists the files and their folders, and `make data` lists the sources of the papers' "
                "corpora"
            )


def make_profile_title() -> str:
    """Return the title of params.yaml: its profile, or its data set with ", changed", and the seed as its start."""
    settings = read_mapping(PARAMS)
    dataset = (settings.get("prepare") or {}).get("dataset", "data")
    name = identify_profile(PARAMS.read_text(encoding="utf-8")) or f"{dataset}, changed"
    return f"{name}, start {settings.get('seed')}"


def order_grid_last(dependencies: Mapping[str, set[str]], cells: int) -> dict[str, set[str]]:
    """Return the stages with their inputs; a grid of `cells` cells also waits for all instances of foreach stages.

    A grid without cells waits for its inputs alone.
    """
    instances = {stage for stage in dependencies if "@" in stage and cells}
    return {stage: inputs | (instances if stage == GRID else set()) for stage, inputs in dependencies.items()}


def order_equal_trainings(dependencies: Mapping[str, set[str]], methods: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the stages with their inputs; a train or adapt stage also waits for the equal stage of an earlier method.

    The stage then copies the files of the earlier stage (`reuse_finished`). If both began together, the second would
    only wait, in the place of another stage.
    """
    ordered, first_methods = dict(dependencies), dict[str, str]()
    for name, block in methods.items():
        options = block.items() if isinstance(block, Mapping) else ()
        training = {"method": name} | {key: value for key, value in options if key not in DECODING_KEYS}
        first = first_methods.setdefault(json.dumps(training, sort_keys=True, default=str), name)
        for stage in ("train", "adapt"):
            if first != name and {f"{stage}@{first}", f"{stage}@{name}"} <= ordered.keys():
                ordered[f"{stage}@{name}"] = ordered[f"{stage}@{name}"] | {f"{stage}@{first}"}
    return ordered


class DvcJobs:
    """DVC processes and the METEOR server that they share."""

    def __init__(self, get_request: Callable[[], signal.Signals | None]) -> None:
        """Store `get_request`, which returns the request to end that this process received, or None."""
        self._get_request = get_request
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._meteor: subprocess.Popen[str] | None = None
        self._environment: dict[str, str] = {}

    def nest_runs(self, profile: str) -> None:
        """Record all runs as children of one run named `profile`."""
        self._environment[PROFILE] = profile

    def share_meteor(self) -> None:
        """Start one METEOR server for all processes. It ends with this process."""
        self._meteor = shared_meteor.start_server(os.environ)

    def run(self, threads: int, *command: str) -> int:
        """Run a `dvc` command and return its exit status.

        Its stages use `threads` threads, unless the environment variable OMP_NUM_THREADS sets another number.
        """
        name = f"dvc {' '.join(command)}"
        self._start_dvc(name, threads, *command)
        return self._wait_for_next()[name]

    def check_parameters(self) -> int:
        """Check params.yaml in a process of its own, since the check imports PyTorch; return the exit status.

        After a check without errors the stage validate does not repeat it.
        """
        digest = compute_digest(PARAMS) if PARAMS.is_file() else ""  # the check reports a missing file
        self._start_process(VALIDATE, os.environ, "stages.validate", "--check")
        if not (status := self._wait_for_next()[VALIDATE]):
            self._environment[CHECKED] = digest
        return status

    def run_stages(self, dependencies: Mapping[str, set[str]], cores: int, max_parallel: int) -> int:
        """Run each stage once its dependencies are done, and print a line for each; return the exit status.

        At most `max_parallel` stages run at a time. Each gets an equal share of `cores` threads at its start. The
        status is 0, USER_ERROR if the first failure was a user error of a stage, or 1 for any other failure. After a
        failure the running stages finish, and no other stage starts. If others were running, the last line names the
        failed stage.
        """
        params = read_mapping(PARAMS)
        cells = len(list_cells(params)) if GRID in dependencies else 0
        dependencies = order_equal_trainings(order_grid_last(dependencies, cells), params.get("methods") or {})
        costs = add_grid_cost(read_recorded_costs(Path()), cells, max_parallel)
        progress = Progress(dependencies, costs, max_parallel)
        order = TopologicalSorter(dependencies)
        order.prepare()
        ready, failure, hint = progress.order_by_chain(order.get_ready()), 0, ""
        while self._running or (ready and not failure):
            threads = max(1, cores // min(max_parallel, max(1, len(self._running) + len(ready))))
            while ready and not failure and len(self._running) < max_parallel:
                stage = ready.pop(0)
                print(progress.begin(stage, time.monotonic()), flush=True)
                self._start_dvc(stage, threads, "--wait-for-lock", "repro", "--single-item", stage)
            for stage, status in self._wait_for_next().items():
                if status and not failure:
                    failure = status if status == USER_ERROR else 1
                    # the lines of stages that still run come after the error
                    hint = f"repro: {stage} failed; the error is above" if self._running else ""
                progress.end(stage, time.monotonic())
                order.done(stage)
            ready = progress.order_by_chain([*ready, *order.get_ready()])
        if hint:
            print(hint, file=sys.stderr)
        return failure

    def end(self) -> list[str]:
        """End all running processes, and return their names."""
        signals.end_descendants()
        return sorted(self._running)

    def _start_dvc(self, name: str, threads: int, *command: str) -> None:
        environment = {"OMP_NUM_THREADS": str(threads)} | self._environment | os.environ
        self._start_process(name, environment, "pipeline.workflow.run_dvc", *command, "--quiet")

    def _start_process(self, name: str, environment: Mapping[str, str], *module: str) -> None:
        command = [sys.executable, "-m", *module]
        self._running[name] = subprocess.Popen(command, env=environment, process_group=0)

    def _wait_for_next(self) -> dict[str, int]:
        """Wait until a process ends, and return the exit statuses by name. Raises StopRequest for a request to end."""
        while True:
            polls = {name: process.poll() for name, process in self._running.items()}
            statuses = {name: status for name, status in polls.items() if status is not None}
            request = self._get_request() or next(filter(None, map(signals.find_request, statuses.values())), None)
            if request:
                raise signals.StopRequest(request)
            if statuses:
                for name in statuses:
                    del self._running[name]
                return statuses
            time.sleep(0.05)


def deny_other_users() -> None:
    """Deny other users access to DVC's folder: DVC unpickles the caches there, and makes them writable by everybody."""
    RWLOCK.parent.mkdir(parents=True, exist_ok=True)
    RWLOCK.parent.chmod(0o700)


def remove_partial_files() -> None:
    """Remove DVC files that a kill left half written, which DVC would refuse to read.

    Raises UserError for conflict markers of Git in such a file, which is kept.
    """
    from dvc.rwlock import SCHEMA
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA

    for path, schema in ((LOCK, COMPILED_LOCKFILE_SCHEMA), (RWLOCK, SCHEMA)):
        if not path.exists():
            continue
        content = path.read_bytes()
        if b"\n<<<<<<< " in b"\n" + content:
            raise UserError(
                f"{path} has conflict markers of Git: resolve them, or remove the file; finished results come from "
                "DVC's cache"
            )
        empty = not content
        with suppress(UserError, Invalid):
            if not empty:
                schema(read_mapping(path))
                continue
        state = "empty" if empty else "cut"
        print(f"{path} was {state} after a kill and is removed; finished results come from DVC's cache")
        path.unlink(missing_ok=True)


def run_stale(jobs: DvcJobs) -> int:
    """Check the parameters, and run all outdated stages; return the exit status."""
    if not has_checked_parameters() and (status := jobs.check_parameters()):
        return status  # before DVC hashes all data
    with signals.raise_requests():  # DVC hashes all data in this process
        check_annotations()
        stale = find_stale_stages()
    if stale and VALIDATE in stale:  # validate writes the digests of code, by which other stages are outdated or not
        if status := jobs.run(count_parallel_cells(), "repro", "--single-item", VALIDATE):
            return status
        with signals.raise_requests():
            stale = find_stale_stages()
    if stale is None:  # dvc repro reports the error itself
        return jobs.run(count_parallel_cells(), "repro")
    if not stale:
        print(UP_TO_DATE)
        return 0
    jobs.nest_runs(make_profile_title())
    jobs.share_meteor()
    if status := jobs.run_stages(
        stale, count_parallel_cells(), 1 if count_requested_gpus() else count_parallel_cells()
    ):
        return status
    with signals.raise_requests():
        find_stale_stages()  # records that nothing is outdated, for the next time
    return 0


def main(arguments: Sequence[str] = ()) -> int:
    """Run all outdated stages; return 0, DVC's status, 1 or 2 after a failure, or 128 + signal for a request to end."""
    if arguments:
        print("usage: python -m pipeline.workflow.repro", file=sys.stderr)
        return 2
    if unchanged.is_recorded():
        print(UP_TO_DATE)
        return 0
    signals.adopt_orphans()
    with signals.record_requests() as get_request:
        jobs = DvcJobs(get_request)
        try:
            deny_other_users()
            remove_partial_files()
            return run_stale(jobs)
        except signals.StopRequest as stop:
            names = ", ".join(jobs.end()) or "no stage was running"
            print(f"repro: ended by {stop} ({names}); run the same command to continue", file=sys.stderr)
            return 128 + stop.request
        except (UserError, OSError) as error:
            jobs.end()
            return report_failure("repro", error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
