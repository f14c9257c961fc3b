"""Transmission of runs' records to MLflow in a separate process; only this and `database` import mlflow.

Sending twice does no harm: MLflow keeps one copy of equal metrics, parameters, tags and artifacts, and an existing run
is found by its key.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pipeline.runtime.files import sha256, write_atomically
from pipeline.tracking.database import create_database, file_of, move_paths, sqlite_address
from pipeline.tracking.spool import (
    DAMAGED,
    NOT_SENT,
    address,
    head_of,
    is_recording,
    now,
    record_of,
    root,
    without_secrets,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "saywhich"
KEY = "saywhich.run"  # the tag with the run's key
KIND = {"mlflow.experimentKind": "custom_model_development"}  # without it, MLflow opens its pages for traces of agents
POLL = 0.5  # seconds between checks of the spool
IDLE = 20.0  # seconds without a run after which a sender ends: more than the gap between two DVC stages
TRIES = 3  # failures in a row after which the records of a finished run are left in the spool
Result = TypeVar("Result")


@dataclass(frozen=True)
class Tracker:
    """A connection: client, experiment id, and, for SQLite, the file whose lock serialises all writers."""

    client: MlflowClient
    experiment: str
    lock: Path | None

    def find(self, key: str) -> str | None:
        """Return MLflow's id of the run with this key; None where there is none."""
        runs = self.client.search_runs([self.experiment], f"tags.`{KEY}` = '{key}'", max_results=1)
        return runs[0].info.run_id if runs else None


@dataclass(frozen=True)
class SendResult:
    """The outcome of sending a run's records.

    Damaged ones are named, a line each, and kept in the spool's `damaged`.
    """

    damaged: list[str]
    ended: bool = True  # whether its records have an end

    def __str__(self) -> str:
        return "sent" if self.ended else "sent as KILLED: its records have no end"


def send(folder: Path) -> SendResult | None:
    """Send one run's records, following them while it lasts, and remove its `folder`.

    None if another process sends it, or the run is only starting.
    """
    try:
        with _locked(folder / "sender.lock", wait=False), open(folder / "records.jsonl", "rb") as file:
            first = file.readline()
            if not first.endswith(b"\n") and not _is_cut(folder, file):
                return None  # the run is only starting
            try:
                head = head_of(first.removesuffix(b"\n"))
            except ValueError:
                return SendResult([_set_aside(folder, folder, "its first record is damaged: nothing of it is sent")])
            if not folder.name.endswith(head["key"][:8]):
                return SendResult(
                    [_set_aside(folder, folder, "holds the records of another run: nothing of it is sent")]
                )
            tracker = _patiently(connect, folder)
            run_id = _patiently(lambda: _open_run(tracker, head, folder.parent), folder)
            sent = _follow(tracker, run_id, file, folder, str(head["key"]))
            shutil.rmtree(folder)
    except BlockingIOError:
        return None
    return sent


def _is_cut(folder: Path, file: BinaryIO) -> bool:
    """Return whether a run without a whole first record is over, and not only starting."""
    if is_recording(folder):
        return False
    time.sleep(POLL)  # a new file is not locked at once
    file.seek(0)
    over = not is_recording(folder) and not file.readline().endswith(b"\n")
    file.seek(0)
    return over


def _set_aside(folder: Path, path: Path, why: str) -> str:
    """Move a run's `folder`, or the file `path` in it, to the spool's `damaged`; return a message."""
    place = folder.parent / DAMAGED / folder.name / path.relative_to(folder)
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    shutil.move(path, place)
    return f"{folder.name}: {why}; it is kept in {place}"


def _keep_line(folder: Path, line: bytes, why: str) -> str:
    """Append a damaged line to a file in the spool's `damaged`; return a message."""
    place = folder.parent / DAMAGED / folder.name / "records.jsonl"
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place, "ab") as file:
        file.write(line + b"\n")
    return f"{folder.name}: {why} and not sent; it is kept in {place}"


def serve_spool(spool: Path) -> None:
    """Send all runs of this address, each in a thread, until no run has been active for IDLE seconds.

    Only one process at a time does so; a second one ends at once.
    """
    ours = address()
    threads: dict[Path, Thread] = {}
    with suppress(BlockingIOError):
        while True:
            with _locked(spool / f"sender-{ours}.lock", wait=False):
                busy = time.monotonic()
                # check the time after looking for work: the machine may have slept between two checks
                while _begin(spool, ours, threads) or _at_work(threads) or time.monotonic() - busy < IDLE:
                    if _at_work(threads):
                        busy = time.monotonic()
                    time.sleep(POLL)
            # a run that began just before the lock was released relies on this process
            if not _begin(spool, ours, threads):
                return


def _at_work(threads: Mapping[Path, Thread]) -> bool:
    return any(thread.is_alive() for thread in threads.values())


def _begin(spool: Path, ours: str, threads: dict[Path, Thread]) -> bool:
    """Start to send the runs that are new; return whether there were any."""
    new = []
    for records in spool.glob("*/records.jsonl"):
        folder = records.parent
        with suppress(OSError, ValueError, KeyError):  # the run is already sent, or only starting
            if folder in threads or (folder / NOT_SENT).exists():
                continue
            with open(records, "rb") as file:
                head = head_of(file.readline().removesuffix(b"\n"))
            if head["sender"] == ours:
                new.append(folder)
    for folder in new:
        threads[folder] = Thread(target=_send_or_report, args=(folder,))
        threads[folder].start()
    return bool(new)


def _send_or_report(folder: Path) -> None:
    try:
        for line in sent.damaged if (sent := send(folder)) else ():
            print(line, file=sys.stderr, flush=True)
    except Exception as error:  # the records stay in the spool; other runs continue
        with suppress(OSError):
            write_atomically(folder / NOT_SENT, _line(error))


def sync(spool: Path) -> int:
    """Send the records of all finished runs, oldest first; return 1 if some were damaged or could not be sent."""
    status = 0
    for folder in sorted(records.parent for records in spool.glob("*/records.jsonl")):
        if not folder.exists() or is_recording(folder):  # sent with its parent, or still running
            continue
        try:
            sent = send(folder)
            print(f"{folder.name}: {sent or 'is being sent'}")
            for line in sent.damaged if sent else ():
                print(line, file=sys.stderr)
                status = 1
        except Exception as error:  # continue with the other runs
            print(f"{folder.name}: not sent: {_line(error)}", file=sys.stderr)
            status = 1
    return status


def connect() -> Tracker:
    """Return the tracker of MLFLOW_TRACKING_URI; database and experiment are created if they do not exist."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # `_patiently` retries
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    own = root() / "mlflow.db"
    uri = os.environ.get("MLFLOW_TRACKING_URI") or sqlite_address(own)
    database = own if uri == sqlite_address(own) else file_of(uri)
    lock = database.with_name(f"{database.name}.lock") if database else None
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    artifacts = None if uri.startswith(("http", "databricks")) else (root() / "mlartifacts").as_uri()
    with _locked(lock):  # two processes at once would fail to create the tables
        if database:
            create_database(database)
        client = MlflowClient(tracking_uri=uri)
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return Tracker(client, client.create_experiment(name, artifacts, KIND), lock)
            except MlflowException:  # on a server another process may have created it meanwhile
                experiment = client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        elif "MLFLOW_TRACKING_URI" not in os.environ and database and experiment.artifact_location != artifacts:
            move_paths(database, experiment.artifact_location, str(artifacts))
        return Tracker(client, experiment.experiment_id, lock)


def _open_run(tracker: Tracker, head: Mapping[str, Any], spool: Path) -> str:
    """Return MLflow's id of the run, which an earlier attempt may have created."""
    tags = {KEY: head["key"]}
    profile = head.get("profile")
    tags |= {"profile": profile} if profile else {}
    if head["parent"]:
        tags["mlflow.parentRunId"] = _parent(tracker, head["parent"], spool)
    elif profile:
        tags["mlflow.parentRunId"] = _profile_run(tracker, profile, head["time"])
    with _locked(tracker.lock):
        run_id = tracker.find(head["key"])
        if run_id is None:
            made = tracker.client.create_run(
                tracker.experiment, start_time=head["time"], tags=tags, run_name=head["name"]
            )
            run_id = made.info.run_id
    return run_id


def _profile_run(tracker: Tracker, profile: str, time_: int) -> str:
    """Return MLflow's id of the run that is the parent of all runs of a profile."""
    key = "profile " + re.sub(r"[^\w, .-]", "_", profile)
    with _locked(tracker.lock):
        run_id = tracker.find(key)
        if run_id is None:
            made = tracker.client.create_run(
                tracker.experiment, start_time=time_, tags={KEY: key, "profile": profile}, run_name=profile
            )
            run_id = made.info.run_id
            tracker.client.set_terminated(run_id, "FINISHED", time_)
    return run_id


def _parent(tracker: Tracker, key: str, spool: Path) -> str:
    """Return MLflow's id of the run with this `key`, awaited while it is in the spool; else the `key` as an id."""
    for _ in range(20):
        if (run_id := tracker.find(key)) or not any(spool.glob(f"*-{key[:8]}")):
            break
        time.sleep(POLL)
    return run_id or key


def _follow(tracker: Tracker, run_id: str, file: BinaryIO, folder: Path, key: str) -> SendResult:
    """Send the content of `file`, all later additions while the run lasts, and then its final status."""
    monitor = _monitor(tracker.client, run_id) if is_recording(folder) else None
    end: Mapping[str, Any] | None = None
    damaged: list[str] = []
    artifacts: dict[str, str] = {}  # artifacts that are not sent yet, and their SHA-256
    rest, over = b"", False
    while not over:
        over = not is_recording(folder)  # checked before reading, so that nothing is missed
        *lines, rest = (rest + file.read()).split(b"\n")  # `rest` is an incomplete last line
        records = []
        for line in lines:
            try:
                records.append(record_of(line, key))
            except ValueError:
                damaged.append(_keep_line(folder, line, "a record is damaged"))
        if records:
            _patiently(partial(_post, tracker, run_id, records), folder)
        artifacts |= {record["artifact"]: record["sha256"] for record in records if "artifact" in record}
        for name, content in list(artifacts.items()):
            if (path := folder / "artifacts" / name).is_file() and sha256(path) == content:
                _patiently(partial(_post_artifact, tracker, run_id, folder, name), folder)
                del artifacts[name]
        end = next((record for record in records if "status" in record), end)
        over = over or end is not None
        if not over:
            time.sleep(POLL)
    if rest:
        damaged.append(_keep_line(folder, rest, "its last record is cut off"))
    for name in artifacts:
        path = folder / "artifacts" / name
        damaged.append(
            _set_aside(folder, path, f"{name} is damaged and not sent")
            if path.exists()
            else f"{folder.name}: {name} is missing and not sent"
        )
    if monitor:
        monitor.finish()
        with suppress(Exception):  # a run shorter than the monitor's interval gets a sample, too
            monitor.collect_metrics()
            monitor.publish_metrics(monitor.aggregate_metrics())
            monitor.mlflow_logger.flush()
    ended = end or {"status": "KILLED", "time": now()}
    _patiently(lambda: tracker.client.set_terminated(run_id, ended["status"], ended["time"]), folder)
    return SendResult(damaged, end is not None)


def _post_artifact(tracker: Tracker, run_id: str, folder: Path, artifact: str) -> None:
    parent = Path(artifact).parent.as_posix()
    tracker.client.log_artifact(run_id, str(folder / "artifacts" / artifact), None if parent == "." else parent)


def _post(tracker: Tracker, run_id: str, records: Sequence[Mapping[str, Any]]) -> None:
    from mlflow.entities import Metric, Param, RunTag

    client = tracker.client
    metrics = [
        Metric(name, value, record["time"], record["step"])
        for record in records
        for name, value in record.get("metrics", {}).items()
    ]
    params = [Param(name, value) for record in records for name, value in record.get("params", {}).items()]
    latest = {name: value for record in records for name, value in record.get("tags", {}).items()}
    tags = [RunTag(name, value) for name, value in latest.items()]
    with _locked(tracker.lock):
        for start in range(0, len(metrics), 1000):  # MLflow's limits for one request
            client.log_batch(run_id, metrics=metrics[start : start + 1000])
        for start in range(0, max(len(params), len(tags)), 50):
            client.log_batch(run_id, params=params[start : start + 50], tags=tags[start : start + 50])
        _log_data_and_models(client, tracker.experiment, run_id, records)


def _log_data_and_models(
    client: MlflowClient, experiment: str, run_id: str, records: Sequence[Mapping[str, Any]]
) -> None:
    """Log inputs as datasets by path and digest, and weights that the run wrote as a model of its name, each once."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, LoggedModelStatus

    for datasets in (record["datasets"] for record in records if record.get("datasets")):
        client.log_inputs(
            run_id,
            [
                DatasetInput(
                    # a digest is 36 characters at most
                    Dataset(path, content[:32], "local", json.dumps({"uri": path})),
                    [InputTag("mlflow.data.context", "input")],
                )
                for path, content in datasets.items()
            ],
        )
    for written in (record["model"] for record in records if "model" in record):
        run = client.get_run(run_id)
        known = run.outputs.model_outputs if run.outputs else []
        if any(client.get_logged_model(model.model_id).params.get("path") == written["path"] for model in known):
            continue
        name = re.sub(r"[/:.%\"']", "_", run.info.run_name)
        made = client.create_logged_model(experiment, name, run_id, params=written)
        client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)
        client.log_outputs(run_id, [LoggedModelOutput(made.model_id, 0)])


def _monitor(client: MlflowClient, run_id: str) -> Any:
    """Start MLflow's monitor of processor, memory, disk, network and any GPU; None where it is off or fails."""
    if os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true").lower() in ("false", "0"):
        return None
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    try:
        monitor = SystemMetricsMonitor(run_id, tracking_uri=client.tracking_uri)
        monitor.start()
    except Exception as error:
        print(f"no system metrics: {_line(error)}", file=sys.stderr)
        return None
    return monitor


def _patiently(action: Callable[[], Result], folder: Path) -> Result:
    """Return the action's result, with retries as long as the run lasts, and at least TRIES attempts."""
    failures = 0
    while True:
        try:
            return action()
        except ImportError:
            raise
        except Exception as error:
            failures += 1
            at_work = is_recording(folder)
            if failures >= TRIES and not at_work:
                raise
            print(_line(error), file=sys.stderr, flush=True)
        deadline = time.monotonic() + min(2.0 * failures, 30.0)
        # stop waiting when the run ends
        while time.monotonic() < deadline and is_recording(folder) == at_work:
            time.sleep(POLL)
            if not at_work:
                break


@contextmanager
def _locked(path: Path | None, wait: bool = True) -> Iterator[None]:
    """Hold the lock exclusively among processes. With wait=False, raises BlockingIOError where another one holds it."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _line(error: BaseException) -> str:
    return without_secrets(f"{type(error).__name__}: {error}".splitlines()[0])
