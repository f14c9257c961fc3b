"""The user's cache folder, for measurements of this machine and code compiled for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pipeline.runtime import home  # noqa: F401 (for Path.home)

OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path:
    """Return the user's cache folder, which may be missing or read-only."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saywhich"


def private_folder(name: str) -> Path:
    """Make the folder `name` in the user's cache folder, accessible to this user only, and return its path.

    Raises OSError, with a one-line reason, where it cannot be made, belongs to another user, or others can write to it
    or replace it.
    """
    try:
        top = cache_folder()
    except RuntimeError:  # a user without a home
        raise FileNotFoundError("there is no cache folder: set XDG_CACHE_HOME or HOME") from None
    path = top / name
    top.parent.mkdir(0o700, parents=True, exist_ok=True)
    for each in (*(top / parent for parent in reversed(Path(name).parents)), path):
        each.mkdir(0o700, exist_ok=True)
        check_private(each)
        if each.stat().st_mode & 0o077:
            each.chmod(0o700)
    return path


def check_private(folder: Path) -> None:
    """Raise PermissionError where `folder` belongs to another user, or others can write to it or replace it.

    Everybody can replace what lies in a folder that all can write to, unless it is sticky, as /tmp is.
    """
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user")
    if status.st_mode & OTHERS:
        raise PermissionError(f"others can write to {folder}; remove it, or chmod 700 it if you trust what is in it")
    for above in folder.resolve().parents:
        if above.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise PermissionError(f"others can write to {above} and replace {folder}; chmod o-w {above}")
