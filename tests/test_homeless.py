"""A user without an entry in the list of users and without HOME, as containers have them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USER = "12345"
# it may read what only root can, so that an interpreter in root's home can be started
AS_USER = [
    "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
]  # fmt: skip
CODE = """
import getpass, os, sys
from pathlib import Path
from pipeline.channels import vocabulary_kernels  # numba's cache
from pipeline.runtime import cache
assert os.getuid() == 12345
home = Path.home()
assert (home.stat().st_uid, home.stat().st_mode & 0o777) == (12345, 0o700), home
assert cache.private_folder("photos").is_dir()
print(home, getpass.getuser())
"""


@pytest.fixture
def homeless(tmp_path):
    """Run Python as such a user; skipped where this process is not root."""
    if os.geteuid() or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, and by setpriv")
    tmp_path.chmod(0o777)
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "USER", "LOGNAME")}
    environment = {name: value for name, value in environment.items() if not name.startswith(("XDG_", "NUMBA_"))}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}

    def run(*words: str) -> str:
        command = [*AS_USER, sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_user_without_a_home_has_a_private_one(homeless, tmp_path):
    assert homeless("-c", CODE) == f"{tmp_path}/saywhich-{USER} {USER}\n"
    assert homeless("-c", CODE) == f"{tmp_path}/saywhich-{USER} {USER}\n"  # the same again: caches are found


def test_a_home_that_others_have_prepared_is_not_used(homeless, tmp_path):
    (tmp_path / f"saywhich-{USER}").mkdir(mode=0o777)
    found = Path(homeless("-c", CODE).split()[0])
    assert found.parent == tmp_path
    assert found.name.startswith(f"saywhich-{USER}-")
