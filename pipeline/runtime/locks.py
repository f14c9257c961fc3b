"""Locks between processes, which the system releases when a process ends for any reason."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def hold_lock(path: Path, name: str) -> Iterator[None]:
    """Hold the lock file `path` for the block; a second process prints a line with `name` and waits.

    Where the file system has no locks, no process waits.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, fallback_to_soft=False)  # a killed process leaves a soft lock behind
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            print(f"{name}: another process is working on it; waiting for that process", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError:
        yield
        return
    try:
        yield
    finally:
        # the file is removed before the release, because a waiting process checks whether it still exists
        path.unlink(missing_ok=True)
        lock.release()
