"""A lock admits one process at a time, and the system releases the lock of a dead process."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime.locks import hold_lock

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys, time
from pathlib import Path
from pipeline.runtime.locks import hold_lock
with hold_lock(Path("x.lock"), "work"):
    print("in", flush=True)
    sys.stdin.readline()
"""


def start_holder(folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", HOLDER]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


def test_a_second_process_prints_a_line_and_waits(tmp_path):
    first = start_holder(tmp_path)
    assert first.stdout.readline() == "in\n"
    second = start_holder(tmp_path)
    second.stdin.write("\n")  # a process that holds the lock would end now
    second.stdin.flush()
    assert "another process is working on it" in second.stderr.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.3)
    first.communicate("\n")
    assert second.communicate()[0] == "in\n"
    assert not (tmp_path / "x.lock").exists()


def test_a_killed_process_releases_its_lock(tmp_path, capsys):
    first = start_holder(tmp_path)
    assert first.stdout.readline() == "in\n"
    first.kill()
    first.wait()
    with hold_lock(tmp_path / "x.lock", "work"):
        assert capsys.readouterr().err == ""


def test_an_error_in_the_block_is_raised_unchanged(tmp_path):
    with pytest.raises(OSError, match="no space"), hold_lock(tmp_path / "x.lock", "work"):
        raise OSError("no space")
