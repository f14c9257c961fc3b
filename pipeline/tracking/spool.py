"""Spool: the folder mlflow-spool, which holds records of runs until they have been sent.

A record is a line: JSON, a tab, and the first 16 digits of the SHA-256 of the run's key and this JSON.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SYNC = "python -m pipeline.tracking sync"
DAMAGED = "damaged"  # the spool's folder for damaged records, which are kept and not sent
NOT_SENT = "not-sent"  # a file in a run's folder with the error that prevented sending; the run waits for `sync`


def format_line(record: Mapping[str, Any], key: str) -> str:
    """Serialise a record of the run with this key as a line of the run's records.

    Characters without a UTF-8 form, such as bytes of a file name, become `?`, since no database stores them.
    """
    text = json.dumps(record, ensure_ascii=False).encode(errors="replace").decode()
    return f"{text}\t{_compute_digest(key, text)}\n"


def parse_line(line: bytes, key: str) -> dict[str, Any]:
    """Return the record in a line, without its newline, of the run with this key.

    Raises ValueError where the line has changed.
    """
    text, _, digest = line.decode().partition("\t")
    record = json.loads(text)
    if not isinstance(record, dict) or digest != _compute_digest(key, text):
        raise ValueError("the line has changed since it was written")
    return record


def parse_head(line: bytes) -> dict[str, Any]:
    """Return the first record of a run, which has the key of the run. Raises ValueError where it is damaged."""
    record = json.loads(line.decode().partition("\t")[0])
    if not isinstance(record, dict) or not {"name", "key", "parent", "sender", "time"} <= record.keys():
        raise ValueError("not a first record")
    return parse_line(line, str(record["key"]))


def _compute_digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key}\t{text}".encode()).hexdigest()[:16]


def is_recording(folder: Path) -> bool:
    """Return whether the process that records to `folder` is alive and therefore locks the records.

    Raises FileNotFoundError where the records are already sent and removed.
    """
    return is_locked(folder / "records.jsonl")


def is_locked(lock: Path) -> bool:
    """Return whether a process holds the lock of this file. Raises FileNotFoundError where there is no file."""
    with open(lock, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def hold_file_lock(path: Path | None, wait: bool = True) -> Iterator[None]:
    """Hold the lock of the file `path` exclusively; without `path`, hold no lock.

    With wait=False, raises BlockingIOError where another process or thread holds the lock.
    """
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def compute_sender_id() -> str:
    """Return the id of a run's sender, 8 hexadecimal digits: one for each machine and each setting of MLflow."""
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("MLFLOW_"))
    return hashlib.sha256(json.dumps([socket.gethostname(), settings]).encode()).hexdigest()[:8]


def find_root() -> Path:
    """Return the repository's root: the working folder; in a copy by `dvc exp run --queue`, the original's root."""
    return Path(os.environ.get("DVC_ROOT") or Path.cwd()).absolute()


def remove_secrets(text: str) -> str:
    """Return `text` without credentials before the @ of addresses, and without MLflow's passwords, tokens and keys."""
    hidden = re.sub(r"://[^/\s'\"]*@", "://***@", text)
    for name, value in os.environ.items():
        if value and name.startswith("MLFLOW_") and name.endswith(("PASSWORD", "TOKEN", "SECRET", "KEY")):
            hidden = hidden.replace(value, "***")
    return hidden


def format_error_line(error: BaseException) -> str:
    """Return the first line of an error with its type, without secrets."""
    return remove_secrets(f"{type(error).__name__}: {error}".splitlines()[0])


def get_milliseconds() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000
