"""The user's cache folder, for measurements of this machine and code compiled for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pipeline.runtime import home  # noqa: F401 (for Path.home)

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def locate_cache() -> Path:
    """Return the user's cache folder, which may be missing or read-only.

    Raises RuntimeError for a user without a home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saywhich"


def make_private_folder(name: str) -> Path:
    """Make the folder `name` in the user's cache folder, accessible to this user only, and return its path.

    Raises OSError, with a one-line reason, where it cannot be made, belongs to another user, or others can write to it
    or replace it.
    """
    try:
        top = locate_cache()
    except RuntimeError:
        raise FileNotFoundError("there is no cache folder: set XDG_CACHE_HOME or HOME") from None
    path = top / name
    top.parent.mkdir(0o700, parents=True, exist_ok=True)
    for folder in (*(top / parent for parent in reversed(Path(name).parents)), path):
        folder.mkdir(0o700, exist_ok=True)
        check_private(folder)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    return path


def check_private(folder: Path) -> None:
    """Raise PermissionError where `folder` belongs to another user, or others can write to it or replace it.

    Any user can replace the files of a folder that all users can write to, unless it is sticky, as /tmp is. The groups
    of the parent folders are trusted.
    """
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user; use a folder that you own")
    if status.st_mode & WRITABLE_BY_OTHERS:
        raise PermissionError(f"others can write to {folder}; remove it, or chmod 700 it if you trust its files")
    for parent in folder.resolve().parents:
        if parent.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise PermissionError(f"others can write to {parent} and replace {folder}; chmod o-w {parent}")
