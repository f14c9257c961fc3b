"""The record that nothing was outdated; while no file has changed, `make repro` prints "up to date" without DVC.

DVC itself considers a file unchanged while its size, time of modification and inode are the same. The record holds a
digest of these attributes, of the mode, and of the inode's change time. It covers all inputs and outputs of all
stages, the files of the workflow and DVC's lock file, but no folder `__pycache__`. Where one of them differs, or a file
was added or removed, DVC decides.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pipeline.runtime.files import write_atomically

RECORD = Path(".dvc/tmp/unchanged.json")
WORKFLOW = ("dvc.yaml", "dvc.lock", "params.yaml", ".dvc/config", ".dvc/config.local", ".dvcignore")


def hash_state(paths: Iterable[str]) -> str:
    """Return a SHA-256 of the states of `paths`, of the files of `WORKFLOW`, and of the files below all of them.

    Folders `__pycache__` below them are left out. Raises OSError for a link to a folder below them, since such links
    may form a loop.
    """
    digest = hashlib.sha256()
    for path in sorted({*paths, *WORKFLOW}):
        for line in _describe_files(path):
            digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def write_record(paths: Iterable[str], state: str) -> None:
    """Record that nothing was outdated while `paths` had the state `state`; without effect where writing fails."""
    with suppress(OSError):  # without the record DVC decides again
        write_atomically(RECORD, json.dumps({"paths": sorted(paths), "state": state}))


def is_recorded() -> bool:
    """Return whether nothing was outdated at the last check and no file has changed since."""
    try:
        record = json.loads(RECORD.read_text(encoding="utf-8"))
        return bool(hash_state(map(str, record["paths"])) == record["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _describe_files(path: str) -> Iterator[str]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        yield f"{path}\0none\n"
        return
    if not stat.S_ISDIR(status.st_mode):
        times = f"{status.st_mtime_ns} {status.st_ctime_ns}"
        yield f"{path}\0{status.st_mode} {status.st_size} {times} {status.st_ino}\n"
        return
    yield f"{path}\0folder\n"  # a folder's own times change with files that DVC ignores, such as compiled modules
    for name in sorted(os.listdir(path)):
        child = os.path.join(path, name)
        if os.path.islink(child) and os.path.isdir(child):
            raise OSError(f"{child}: a link to a folder")
        if name != "__pycache__":
            yield from _describe_files(child)
