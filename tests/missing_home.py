"""Python as a user without an entry in the list of users, and without the variable HOME."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USER = "12345"
# the process may read root's files, so that it can start an interpreter in root's home
AS_USER = [
    "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip


def run_without_home(folder: Path, *arguments: str, code: Path = ROOT, **settings: str) -> str:
    """Run Python in `folder` with the packages below `code`; its temporary files and its home are in `folder`, too.

    Skips the test where this process is not root, or setpriv is not installed.
    """
    if os.geteuid() or shutil.which("setpriv") is None:
        pytest.skip("expected root and the program setpriv, which together start a process as another user")
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "USER", "LOGNAME")}
    environment = {name: value for name, value in environment.items() if not name.startswith(("XDG_", "NUMBA_"))}
    environment |= {"PYTHONPATH": str(code), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder)} | settings
    command = [*AS_USER, sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
