"""Locks between processes, which the system takes back when a process ends, however it does."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Only one process at a time is in a block with the lock file `path`; another one says so, and waits.

    Where the file system has no locks, nobody waits.
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
        path.unlink(missing_ok=True)  # before others have the lock: they look whether it is still this file
        os.close(descriptor)


def _held(path: Path, how: int) -> int | None:
    """A descriptor of the locked file; None where another process has it, or has removed it meanwhile."""
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
