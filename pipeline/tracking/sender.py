"""Transmission of runs' records from the spool to MLflow, in a separate process."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, TypeVar

from pipeline.runtime.files import compute_sha256, write_atomically
from pipeline.tracking.spool import (
    DAMAGED,
    NOT_SENT,
    compute_sender_id,
    format_error_line,
    get_milliseconds,
    hold_file_lock,
    is_recording,
    parse_head,
    parse_line,
)
from pipeline.tracking.tracker import PROFILE_KEY, Tracker, connect, finish_monitor

POLL = 0.1  # seconds between checks of the spool: a stage ends once its records are sent
IDLE = 20.0  # seconds without a run after which a sender ends: more than the gap between two DVC stages
TRIES = 3  # failures in a row after which the records of a finished run are left in the spool
Result = TypeVar("Result")


@dataclass(frozen=True)
class SendResult:
    """Outcome of sending a run's records.

    `damaged` has a message for each damaged record, and for each damaged or missing artifact. The spool's folder
    `damaged` keeps damaged records and artifacts.
    """

    damaged: list[str]
    ended: bool = True  # whether the records contain a final status
    sent: bool = True  # False if all records were set aside

    def __str__(self) -> str:
        if not self.sent:
            return "not sent"
        return "sent" if self.ended else "sent as KILLED: its records have no final status"


def send(folder: Path) -> SendResult | None:
    """Send one run's records, following them while the run lasts, and remove its `folder`.

    Returns None if another process sends the records, or the run is only starting. If the first record is
    damaged or belongs to another run, the folder is moved to the spool's `damaged`. Raises the last error of MLflow or
    the file system after TRIES failures; the records then stay in the spool.
    """
    try:
        with hold_file_lock(folder / "sender.lock", wait=False), open(folder / "records.jsonl", "rb") as file:
            first_line = file.readline()
            if not first_line.endswith(b"\n") and not _has_ended_without_head(folder, file):
                return None  # the run is only starting
            try:
                head = parse_head(first_line.removesuffix(b"\n"))
            except ValueError:
                return SendResult(
                    [_move_to_damaged(folder, folder, "its first record is damaged: no record is sent")], sent=False
                )
            if not folder.name.endswith(head["key"][:8]):
                return SendResult(
                    [_move_to_damaged(folder, folder, "holds the records of another run: no record is sent")],
                    sent=False,
                )
            tracker = _retry(connect, folder)
            run_id = _retry(lambda: _open_run(tracker, head, folder.parent), folder)
            result = _follow_records(tracker, run_id, file, folder, str(head["key"]))
            shutil.rmtree(folder)
    except BlockingIOError:
        return None
    return result


def _has_ended_without_head(folder: Path, file: BinaryIO) -> bool:
    """Return whether a run without a complete first record has ended; False if it is only starting."""
    if is_recording(folder):
        return False
    time.sleep(POLL)  # a new file is not locked at once
    file.seek(0)
    ended = not is_recording(folder) and not file.readline().endswith(b"\n")
    file.seek(0)
    return ended


def _move_to_damaged(folder: Path, path: Path, problem: str) -> str:
    """Move a run's `folder`, or the file `path` in it, to the spool's `damaged`; return a message."""
    target = folder.parent / DAMAGED / folder.name / path.relative_to(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        shutil.rmtree(target)
    shutil.move(path, target)
    return f"{folder.name}: {problem}; it is kept in {target}"


def _append_to_damaged(folder: Path, line: bytes, problem: str) -> str:
    """Append a damaged line to a file in the spool's `damaged`; return a message."""
    target = folder.parent / DAMAGED / folder.name / "records.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "ab") as file:
        file.write(line + b"\n")
    return f"{folder.name}: {problem} and not sent; it is kept in {target}"


def serve_spool(spool: Path) -> None:
    """Send all runs with this process's sender id, each in a thread, until no run has been active for IDLE seconds.

    Only one process at a time serves an id; a second process ends at once.
    """
    sender_id = compute_sender_id()
    threads: dict[Path, Thread] = {}
    with suppress(BlockingIOError):
        while True:
            with hold_file_lock(spool / f"sender-{sender_id}.lock", wait=False):
                last_active = time.monotonic()
                # the time is compared after the search for runs: the machine may have been suspended
                while (
                    _start_sending(spool, sender_id, threads)
                    or _is_sending(threads)
                    or time.monotonic() - last_active < IDLE
                ):
                    if _is_sending(threads):
                        last_active = time.monotonic()
                    time.sleep(POLL)
            # a run that began just before the lock was released relies on this process
            if not _start_sending(spool, sender_id, threads):
                return


def _is_sending(threads: Mapping[Path, Thread]) -> bool:
    return any(thread.is_alive() for thread in threads.values())


def _start_sending(spool: Path, sender_id: str, threads: dict[Path, Thread]) -> bool:
    """Start a thread for each new run with this sender id; return whether there was a new run."""
    new_folders = []
    for records in spool.glob("*/records.jsonl"):
        folder = records.parent
        with suppress(OSError, ValueError, KeyError):  # the run is already sent, or only starting
            if folder in threads or (folder / NOT_SENT).exists():
                continue
            with open(records, "rb") as file:
                head = parse_head(file.readline().removesuffix(b"\n"))
            if head["sender"] == sender_id:
                new_folders.append(folder)
    for folder in new_folders:
        threads[folder] = Thread(target=_send_or_report, args=(folder,))
        threads[folder].start()
    return bool(new_folders)


def _send_or_report(folder: Path) -> None:
    try:
        for line in result.damaged if (result := send(folder)) else ():
            print(line, file=sys.stderr, flush=True)
    except Exception as error:  # the records stay in the spool; other runs continue
        with suppress(OSError):
            write_atomically(folder / NOT_SENT, format_error_line(error))


def sync(spool: Path) -> int:
    """Send the records of all finished runs, oldest first; return 1 if any were damaged or not sent, else 0."""
    status = 0
    for folder in sorted(records.parent for records in spool.glob("*/records.jsonl")):
        try:
            if is_recording(folder):
                continue
        except FileNotFoundError:  # another process has sent the run meanwhile
            continue
        try:
            result = send(folder)
            print(f"{folder.name}: {result or 'is being sent'}")
            for line in result.damaged if result else ():
                print(line, file=sys.stderr)
                status = 1
        except Exception as error:  # the other runs are still sent
            print(f"{folder.name}: not sent: {format_error_line(error)}", file=sys.stderr)
            status = 1
    return status


def _open_run(tracker: Tracker, head: Mapping[str, Any], spool: Path) -> str:
    """Return MLflow's id of the run; create the run unless an earlier attempt has created it."""
    profile = head.get("profile")
    tags = {"profile": profile} if profile else {}
    if head["parent"]:
        tags["mlflow.parentRunId"] = _find_parent(tracker, head["parent"], spool)
    elif profile:  # the parent of all runs of the profile
        key = PROFILE_KEY + re.sub(r"[^\w, .-]", "_", profile)
        tags["mlflow.parentRunId"] = tracker.find_or_create(key, profile, head["time"], tags, finished=True)
    return tracker.find_or_create(head["key"], head["name"], head["time"], tags)


def _find_parent(tracker: Tracker, key: str, spool: Path) -> str:
    """Return MLflow's id of the run with this `key`; without such a run, return `key`, which may be an id.

    A run that is still in the spool is awaited, for 10 seconds at most.
    """
    for _ in range(round(10 / POLL)):
        if (run_id := tracker.find(key)) or not any(spool.glob(f"*-{key[:8]}")):
            break
        time.sleep(POLL)
    return run_id or key


def _follow_records(tracker: Tracker, run_id: str, file: BinaryIO, folder: Path, key: str) -> SendResult:
    """Send the content of `file`, later additions while the run lasts, and the final status, by default KILLED."""
    monitor = tracker.start_monitor(run_id) if is_recording(folder) else None
    status_record: Mapping[str, Any] | None = None
    damaged: list[str] = []
    artifacts: dict[str, str] = {}  # artifacts that are not sent yet, and their SHA-256
    partial_line, ended = b"", False
    while not ended:
        ended = not is_recording(folder)  # checked before reading, so that nothing is missed
        *lines, partial_line = (partial_line + file.read()).split(b"\n")  # `partial_line` is an incomplete last line
        records = []
        for line in lines:
            try:
                records.append(parse_line(line, key))
            except ValueError:
                damaged.append(_append_to_damaged(folder, line, "a record is damaged"))
        if records:
            _retry(partial(tracker.log, run_id, records), folder)
        artifacts |= {record["artifact"]: record["sha256"] for record in records if "artifact" in record}
        for name, digest in list(artifacts.items()):
            if (path := folder / "artifacts" / name).is_file() and compute_sha256(path) == digest:
                _retry(partial(tracker.log_artifact, run_id, folder, name), folder)
                del artifacts[name]
        status_record = next((record for record in records if "status" in record), status_record)
        ended = ended or status_record is not None
        if not ended:
            time.sleep(POLL)
    if partial_line:
        damaged.append(_append_to_damaged(folder, partial_line, "its last record is cut off"))
    for name in artifacts:
        path = folder / "artifacts" / name
        damaged.append(
            _move_to_damaged(folder, path, f"{name} is damaged and not sent")
            if path.exists()
            else f"{folder.name}: {name} is missing and not sent"
        )
    if monitor:
        finish_monitor(monitor)
    final = status_record or {"status": "KILLED", "time": get_milliseconds()}
    _retry(lambda: tracker.client.set_terminated(run_id, final["status"], final["time"]), folder)
    return SendResult(damaged, status_record is not None)


def _retry(action: Callable[[], Result], folder: Path) -> Result:
    """Return the action's result; retry as long as the run lasts, and at least up to TRIES attempts.

    An ImportError is raised at once, since later attempts would fail, too.
    """
    failures = 0
    while True:
        try:
            return action()
        except ImportError:
            raise
        except Exception as error:
            failures += 1
            recording = is_recording(folder)
            if failures >= TRIES and not recording:
                raise
            print(format_error_line(error), file=sys.stderr, flush=True)
        deadline = time.monotonic() + min(2.0 * failures, 30.0)
        # stop waiting when the run ends
        while time.monotonic() < deadline and is_recording(folder) == recording:
            time.sleep(POLL)
            if not recording:
                break
