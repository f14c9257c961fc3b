"""The spool: the folder mlflow-spool, where records of runs wait until they have been sent."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import time
from pathlib import Path

SYNC = "python -m pipeline.tracking sync"
NOT_SENT = "not-sent"  # a file in the folder of a run that says why; such a run waits for `sync`


def alive(folder: Path) -> bool:
    """Whether the process that records to `folder` still does: it holds the lock of the records."""
    return held(folder / "records.jsonl")


def held(lock: Path) -> bool:
    """Whether a process holds the lock of this file; FileNotFoundError where there is none."""
    with open(lock, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def address() -> str:
    """Names the sender of a run: one for each machine and each setting of MLflow."""
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("MLFLOW_"))
    return hashlib.sha256(json.dumps([socket.gethostname(), settings]).encode()).hexdigest()[:8]


def root() -> Path:
    """The working folder, which is the repository's; in the copies that `dvc exp run --queue` makes, the original's."""
    return Path(os.environ.get("DVC_ROOT") or Path.cwd()).absolute()


def without_secrets(text: str) -> str:
    """`text` without what addresses have before their @, and without the values of MLflow's passwords and tokens."""
    hidden = re.sub(r"://[^/\s'\"]*@", "://***@", text)
    for name, value in os.environ.items():
        if value and name.startswith("MLFLOW_") and name.endswith(("PASSWORD", "TOKEN", "SECRET", "KEY")):
            hidden = hidden.replace(value, "***")
    return hidden


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
