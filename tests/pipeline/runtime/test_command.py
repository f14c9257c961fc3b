"""Exit statuses of commands, and the end of their processes."""

import os
import signal
import subprocess
import sys

import pytest
from toy_world import ROOT

from pipeline.runtime.command import run_command
from pipeline.runtime.signals import StopRequest


class Panic(BaseException):
    """Stand-in for the error of a Rust library that called a Python function in which StopRequest was raised."""


def wrap_request(request: signal.Signals) -> None:
    try:
        os.kill(os.getpid(), request)
    except StopRequest as stopped:
        raise Panic(repr(stopped)) from None


@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGINT])
def test_a_request_that_a_library_turns_into_another_error_still_ends_the_command(request_, capfd):
    assert run_command("train", lambda: wrap_request(request_)) == 128 + request_
    assert capfd.readouterr().err == f"train: ended by {request_.name}; run the same command to continue\n"


def raise_request_of_child() -> None:
    raise StopRequest(signal.SIGTERM)


def test_a_request_to_a_child_ends_the_command_with_the_status_of_the_signal(capfd):
    assert run_command("sweep", raise_request_of_child) == 128 + signal.SIGTERM
    assert capfd.readouterr().err == "sweep: ended by SIGTERM; run the same command to continue\n"


def test_an_error_without_a_request_is_raised():
    run_command("train", lambda: wrap_request(signal.SIGTERM))  # a request to an earlier command does not count

    def raise_panic() -> None:
        raise Panic("a fault")

    with pytest.raises(Panic, match="a fault"):
        run_command("train", raise_panic)


def test_a_command_that_exits_after_a_request_keeps_its_status():
    def exit_on_request() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except StopRequest:
            raise SystemExit(3) from None

    with pytest.raises(SystemExit, match="3"):
        run_command("train", exit_on_request)


def test_an_os_error_without_errno_does_not_hide_a_request(capfd):
    def fail_to_read() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except StopRequest:
            raise OSError("cannot read data") from None

    assert run_command("train", fail_to_read) == 128 + signal.SIGTERM
    assert capfd.readouterr().err == "train: ended by SIGTERM; run the same command to continue\n"


def test_a_process_ends_with_its_handlers_and_output_but_keeps_its_modules():
    code = """
import atexit, sys
from pipeline.runtime.command import end_process

class Module:
    def __del__(self):
        print("cleared")

module = Module()
atexit.register(print, "handled")
sys.stdout.write("written, ")
end_process(3)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "written, handled\n", "")
