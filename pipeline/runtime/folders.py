"""Folders that are complete or absent: written under another name, flushed to disk, then renamed at once."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from pipeline.errors import UserError

ASIDE = "-.part"  # end of the name of an older folder while the new folder is renamed
AT_CWD, EXCHANGE = -100, 2  # constants of Linux's renameat2


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`, which replaces `path` if the block ends without an error.

    An older folder stays at `path` until then. Temporary folders of killed processes are removed. Raises UserError
    where `path` is a file, a mount, the working folder or a parent of the working folder.
    """
    path = path.resolve()
    if path.is_mount() or Path.cwd().is_relative_to(path):
        raise UserError(f"{path}: cannot be replaced while it is in use; give the path of a new folder inside it")
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: expected a folder, found a file; give the path of another folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    # the eight digits keep the leftovers of a folder k.b from matching the folder k
    is_leftover = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}-?\.part").fullmatch
    for leftover in [folder for folder in path.parent.iterdir() if is_leftover(folder.name)]:
        with suppress(OSError), _lock(leftover):
            if leftover.name.endswith(ASIDE) and not path.exists():
                os.rename(leftover, path)  # a process was killed between the two renames of _move_into_place
            else:
                shutil.rmtree(leftover)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    temporary.mkdir()
    try:
        with _lock(temporary):
            yield temporary
            os.sync()  # the files' bytes must be on disk before the folder gets its name
            _move_into_place(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # on success this is the older folder, if there was one


def check_replaceable(folder: Path, outputs: Collection[str]) -> None:
    """Raise UserError where `folder` is a file, or contains files other than the `outputs` of an earlier run."""
    if folder.is_dir():
        known = {*outputs, *(parent.as_posix() for name in outputs for parent in PurePosixPath(name).parents)}
        names = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
        other = next((name for name in names if name not in known), None)
    else:
        other = folder.name if folder.exists() else None
    if other is not None:
        raise UserError(
            f"{folder}: expected only outputs of an earlier run, found {other}; give another folder, or remove {other}"
        )


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock a folder against removal as abandoned. Raises BlockingIOError where another process holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _move_into_place(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`; if `path` exists, exchange both folders in one step.

    On a system without a call for the exchange, `path` is absent for a moment.
    """
    if not path.exists():
        os.rename(temporary, path)
    elif not _exchange(temporary, path):
        aside = path.with_name(f"{temporary.stem}{ASIDE}")
        os.rename(path, aside)
        try:
            os.rename(temporary, path)
        except OSError:
            os.rename(aside, path)
            raise
        os.rename(aside, temporary)
    parent = os.open(path.parent, os.O_RDONLY)
    os.fsync(parent)
    os.close(parent)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the two paths. Return False where the system has no such call; raises OSError where the call fails."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(AT_CWD, os.fsencode(first), AT_CWD, os.fsencode(second), EXCHANGE) == 0:
        return True
    if (number := ctypes.get_errno()) in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(second))
