"""The preloaded Python runs modules and code like Python: arguments, folder, environment, exit status and signals."""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import preloaded_python
import pytest
from preloaded_python import Server, find_program

SECONDS = 120  # until a process that has not ended counts as a failure

MODULE = """
import os, sys, time
import helper
print("torch" in sys.modules, helper.__file__, os.getcwd(), sys.argv[1:], os.environ["SETTING"], sys.executable)
print(__name__, file=sys.stderr)
if "wait" in sys.argv:
    print(os.getpid(), flush=True)
    time.sleep(3600)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else None)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "helper.py").touch()
    return tmp_path


def start_process(folder: Path, *command: str) -> subprocess.Popen[str]:
    environment = os.environ | {"SETTING": "value", "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def test_a_module_has_its_arguments_folder_environment_and_exit_status(folder):
    python = find_program("python")
    process = start_process(folder, python, "-m", "module", "7", "two words")
    out, error = process.communicate(timeout=SECONDS)
    assert out == f"True {folder}/helper.py {folder} ['7', 'two words'] value {python}\n"
    assert error == "__main__\n"
    assert process.returncode == 7
    assert start_process(folder, python, "-m", "module").wait(timeout=SECONDS) == 0
    missing = start_process(folder, python, "-m", "nothing")
    assert "No module named nothing" in missing.communicate(timeout=SECONDS)[1]
    assert missing.returncode == 1


def test_code_has_its_arguments_and_its_own_module(folder):
    code = "import sys, helper; print('torch' in sys.modules, sys.argv, __name__); sys.exit(7)"
    process = start_process(folder, find_program("python"), "-c", code, "one", "two words")
    assert process.communicate(timeout=SECONDS) == ("True ['-c', 'one', 'two words'] __main__\n", "")
    assert process.returncode == 7


def test_other_commands_run_in_this_environments_python(folder):
    (folder / "script.py").write_text("import sys; print('torch' in sys.modules, sys.executable)")
    out, _ = start_process(folder, find_program("python"), "script.py").communicate(timeout=SECONDS)
    assert out == f"False {sys.executable}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_both_processes(folder, number):
    process = start_process(folder, find_program("python"), "-m", "module", "0", "wait")
    process.stdout.readline()
    child = int(process.stdout.readline())
    assert child != process.pid
    assert os.getpgid(child) == os.getpgid(process.pid)
    process.send_signal(number)
    assert process.wait(timeout=SECONDS) == -number
    deadline = time.monotonic() + SECONDS
    while Path(f"/proc/{child}/stat").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_server_ends_with_the_last_test_process(tmp_path):
    """The server has its own folder, as in another pytest process."""
    code = (
        "import preloaded_python as p, subprocess; p.MODULES = ();"
        "subprocess.run([p.find_program('python'), '-m', 'this'])"
    )
    environment = os.environ | {preloaded_python.FOLDER: str(tmp_path), "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS
    )
    assert done.stdout.count("Beautiful is better than ugly.") == 1  # the pipe is closed, so no process holds it


def test_the_server_continues_after_a_client_that_ends_together_with_its_process():
    handler, wakeup = signal.getsignal(signal.SIGCHLD), signal.set_wakeup_fd(-1)
    listener, peer = socket.socketpair()
    server = Server(listener)
    try:
        connection, client = socket.socketpair()
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        server.clients[child] = connection
        server.waiting.register(connection, selectors.EVENT_READ)
        client.close()
        assert len(server.waiting.select(SECONDS)) == 2
        assert server.serve() is None
        assert connection.fileno() == -1
    finally:
        server.close()
        listener.detach()  # `close` has closed its descriptor
        peer.close()
        signal.signal(signal.SIGCHLD, handler)
        signal.set_wakeup_fd(wakeup)
