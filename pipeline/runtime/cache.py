"""The user's cache folder: what was found out about this machine, and what was compiled for it."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """It need not exist, nor be writable."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saywhich"
