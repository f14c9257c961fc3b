"""Locks between processes, which the system releases when a process ends for any reason."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path` for the block; a second process prints a line and waits.

    Where the file system has no locks, no process waits.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = _held(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if descriptor is None:
            print(f"{what}: another process is at it; waiting until it has ended", file=sys.stderr, flush=True)
            while descriptor is None:
                descriptor = _held(path, fcntl.LOCK_EX)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        # before the lock is released: a waiting process checks whether the file is still there
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _held(path: Path, how: int) -> int | None:
    """Return a descriptor of the locked file; None where another process holds it, or has removed it meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, how)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
