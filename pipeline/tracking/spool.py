"""The spool: the folder mlflow-spool, where records of runs wait until they have been sent."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

SYNC = "python -m pipeline.tracking sync"


def alive(folder: Path) -> bool:
    """Whether the process that records to `folder` still does: it holds the lock of the records."""
    with open(folder / "records.jsonl", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def root() -> Path:
    """The working folder, which is the repository's; in the copies that `dvc exp run --queue` makes, the original's."""
    return Path(os.environ.get("DVC_ROOT") or Path.cwd()).absolute()


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
