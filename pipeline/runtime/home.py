"""A home folder for a user unknown to the system, as in containers; importing this module sets HOME.

For a user who is not in the system's list of users, `Path.home()` fails without HOME, and `getpass.getuser()` fails
without USER or LOGNAME. MLflow, PyTorch and the caches then fail, too.
"""

from __future__ import annotations

import getpass
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def _set_home() -> None:
    """Set HOME to a private temporary folder, and USER to the user's id, each where it cannot be determined."""
    try:
        Path.home()
    except RuntimeError:
        home = Path(tempfile.gettempdir(), f"saywhich-{os.getuid()}")
        try:
            home.mkdir(mode=0o700, exist_ok=True)
            status = home.lstat()
            private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
        except OSError:
            private = False
        os.environ["HOME"] = str(home) if private else tempfile.mkdtemp(prefix=f"{home.name}-")
    try:
        getpass.getuser()
    except (OSError, KeyError):  # KeyError before Python 3.13
        os.environ["USER"] = str(os.getuid())


with suppress(OSError):  # no folder is writable
    _set_home()
