"""Requests to end: at once, after a step, and when the caller has ended."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import psutil
import pytest

from pipeline.runtime import signals
from pipeline.runtime.signals import StopRequest, postpone_requests, raise_requests

ROOT = Path(__file__).parents[3]
STAGE = """
import os, pathlib, time
from pipeline.runtime.signals import StopRequest, raise_requests
try:
    with raise_requests():
        pathlib.Path("began").write_text(str(os.getpid()))
        time.sleep(600)
except StopRequest as stopped:
    pathlib.Path("ended").write_text(str(stopped))
"""


def signal_own_process(*requests: signal.Signals) -> None:
    for request in requests:
        os.kill(os.getpid(), request)
    time.sleep(60)


def test_a_request_ends_work_at_once():
    previous = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StopRequest, match="SIGTERM"), raise_requests():
        signal_own_process(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is previous


def test_a_request_before_the_block_reaches_the_previous_handler(monkeypatch):
    requests = []
    previous = signal.signal(signal.SIGTERM, lambda number, frame: requests.append(number))
    monkeypatch.setattr(signals, "_find_callers", lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        with raise_requests():
            assert requests == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, previous)


def test_a_request_during_an_import_is_raised_after_it(tmp_path, monkeypatch):
    """C++ code that initialises a module of PyTorch may abort the process where an exception reaches it."""
    code = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.3)\nwhole = True\n"
    (tmp_path / "interrupted_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    def import_slowly():
        import_module("interrupted_module")
        time.sleep(60)

    with pytest.raises(StopRequest, match="SIGTERM"), raise_requests():
        import_slowly()
    assert sys.modules.pop("interrupted_module").whole


class RequestInDestructor:
    """An object whose destructor is interrupted by a request; Python swallows exceptions there."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_request_that_a_destructor_swallows_is_raised_again():
    hook = sys.unraisablehook

    def delete_object():
        RequestInDestructor()
        time.sleep(60)

    with pytest.raises(StopRequest, match="SIGTERM"), raise_requests():
        delete_object()
    assert sys.unraisablehook is hook


def test_initially_ignored_signals_stay_ignored():
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup does the same
    try:
        with raise_requests():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_sigint_ends_a_background_process_of_a_shell():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(StopRequest, match="SIGINT"), raise_requests():
            signal_own_process(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("signals")
def test_equal_signals_from_group_and_caller_are_one_request():
    results = []
    with pytest.raises(StopRequest, match="SIGTERM"), raise_requests(), postpone_requests() as has_request:
        results += [os.kill(os.getpid(), signal.SIGTERM), os.kill(os.getpid(), signal.SIGTERM), has_request()]
    assert results == [None, None, True]


@pytest.mark.usefixtures("signals")
def test_an_endless_step_is_interrupted(monkeypatch):
    monkeypatch.setattr(signals, "STEP_SECONDS", 0.1)
    monkeypatch.setattr(signals, "REPEAT_SECONDS", 0.0)
    with pytest.raises(StopRequest, match="SIGTERM"), raise_requests(), postpone_requests():
        signal_own_process(signal.SIGTERM)


@pytest.mark.usefixtures("signals")
def test_a_handled_request_is_not_repeated(monkeypatch):
    monkeypatch.setattr(signals, "STEP_SECONDS", 0.1)
    with pytest.raises(StopRequest), raise_requests(), postpone_requests():
        os.kill(os.getpid(), signal.SIGTERM)
    with raise_requests(), postpone_requests() as has_request:
        time.sleep(0.3)
        assert not has_request()


# this program runs in a process of its own, which has no other descendants
END_ALL = """
import os, signal, subprocess, sys, time
from pipeline.runtime import signals
signals.END_SECONDS = 0.3
signals.adopt_orphans()
with signals.record_requests() as get_request:
    process = subprocess.Popen(["sh", "-c", sys.argv[1]])
    while not os.path.exists("began"):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGTERM)
    assert get_request() == signal.SIGTERM
    signals.end_descendants()
    assert process.poll() == -signal.SIGKILL
"""


def test_processes_that_ignore_requests_are_killed_with_their_descendants(tmp_path):
    """One process ignores requests; a descendant of it has a parent that has ended."""
    command = "trap '' TERM; sh -c 'sleep 3600 & echo $! > orphan'; touch began; sleep 60; sleep 60"
    subprocess.run([sys.executable, "-c", END_ALL, command], cwd=tmp_path, check=True)
    wait_for_end(int((tmp_path / "orphan").read_text()))


@pytest.mark.parametrize(
    ("status", "request_"),
    [(0, None), (1, None), (137, None), (-9, None), (143, signal.SIGTERM), (-2, signal.SIGINT), (129, signal.SIGHUP)],
)
def test_an_exit_status_gives_the_request(status, request_):
    assert signals.find_request(status) == request_


@pytest.mark.usefixtures("signals")
def test_the_first_request_waits_and_the_second_does_not():
    results = []
    with pytest.raises(StopRequest, match="SIGTERM"), raise_requests(), postpone_requests() as has_request:
        results += [has_request(), os.kill(os.getpid(), signal.SIGTERM), has_request()]
    assert results == [False, None, True]
    with pytest.raises(StopRequest, match="SIGINT"), raise_requests(), postpone_requests():
        signal_own_process(signal.SIGTERM, signal.SIGINT)


def wait_for_text(path: Path) -> str:
    deadline = time.monotonic() + 600
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, path
        time.sleep(0.02)
    return path.read_text()


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended; in a container it may stay a zombie."""
    deadline = time.monotonic() + 600
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, pid
            time.sleep(0.02)


@pytest.mark.parametrize("program", ["dvc", "snakemake"])
def test_descendants_of_a_killed_caller_end(tmp_path, program):
    """The caller has the name of DVC or Snakemake; it starts a shell, which starts a stand-in for a stage."""
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / program).write_text("import subprocess, sys; subprocess.run(sys.argv[1], shell=True)")
    command = f"{sys.executable} stage.py; true"  # a shell may replace itself by its last command, but not by `true`
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    caller = subprocess.Popen([sys.executable, program, command], cwd=tmp_path, env=environment)
    stage = int(wait_for_text(tmp_path / "began"))
    caller.kill()
    caller.wait()
    assert wait_for_text(tmp_path / "ended") == "SIGTERM"
    wait_for_end(stage)


def test_descendants_of_a_killed_caller_end_without_a_terminal(tmp_path):
    """Nothing can be printed after the terminal, or the program that reads standard error, has ended."""
    (tmp_path / "stage.py").write_text(STAGE)
    (tmp_path / "dvc").write_text("import subprocess, sys; subprocess.run(sys.argv[1], shell=True)")
    command = f"{sys.executable} stage.py; true"
    reader, writer = os.pipe()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    caller = subprocess.Popen([sys.executable, "dvc", command], cwd=tmp_path, env=environment, stderr=writer)
    os.close(writer)
    stage = int(wait_for_text(tmp_path / "began"))
    os.close(reader)
    caller.kill()
    caller.wait()
    assert wait_for_text(tmp_path / "ended") == "SIGTERM"
    wait_for_end(stage)


END_WITH_CHILDREN = """
import pathlib, subprocess, time
from pipeline.runtime import signals
signals.END_SECONDS = 0.3
signals.end_with_children("the grid")
pathlib.Path("began").write_text(str(subprocess.Popen(["sleep", "3600"]).pid))
time.sleep(60)
"""


def test_a_program_without_a_terminal_ends_with_its_children(tmp_path):
    reader, writer = os.pipe()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", END_WITH_CHILDREN]
    program = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=writer)
    os.close(writer)
    child = int(wait_for_text(tmp_path / "began"))
    os.close(reader)
    program.terminate()
    assert program.wait() == 128 + signal.SIGTERM
    wait_for_end(child)


def test_a_process_started_from_a_shell_outlives_the_shell(tmp_path):
    (tmp_path / "stage.py").write_text(STAGE.replace("sleep(600)", "sleep(30)"))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    caller = subprocess.Popen(["/bin/sh", "-c", f"{sys.executable} stage.py; true"], cwd=tmp_path, env=environment)
    stage = psutil.Process(int(wait_for_text(tmp_path / "began")))
    caller.kill()
    caller.wait()
    time.sleep(1.5)
    assert not (tmp_path / "ended").exists()
    assert stage.status() != psutil.STATUS_ZOMBIE
    stage.kill()
