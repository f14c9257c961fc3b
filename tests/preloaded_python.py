"""A Python with the large packages imported: one server imports them, and forks each new process.

`find_program("python")` is the path of this Python, for `python -m MODULE` and `python -c CODE` in tests that do not
test the start of Python. The new process imports MODULE and this project itself, from its own working folder. The
ordinary Python of this environment runs scripts, code with multiprocessing, stages with several threads, and any
command whose environment variables change how Python starts.

`find_program` starts the server, which ends with the last test process.
"""

import atexit
import gc
import importlib
import marshal
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from filelock import FileLock

FOLDER = "SAYWHICH_TEST_PYTHON"  # the variable with the folder that the test processes of a run share
REQUESTS = [int(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
PROGRAMS = {"python": "", "dvc": "dvc", "snakemake": "snakemake"}  # programs, with the module that each runs
VARIABLES = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}  # settings that the new process follows
LEASE = b"\0\0\0\0"
MODULES = (
    "torch._dynamo", "torch.onnx", "numba.typed", "numba.experimental", "numba.np.arrayobj", "scipy.linalg",
    "scipy.stats", "networkx", "h5py", "pydantic.dataclasses", "pyarrow.parquet", "safetensors.torch", "PIL.Image",
    "grimp", "ruamel.yaml", "matplotlib.pyplot", "mlflow.tracking", "dvc.repo.status", "dvc.cli.parser", "dvc.scm",
    "dvc.commands.repro", "dvc.cachemgr", "dvc.data_cloud", "dvc_render.vega", "dulwich.repo", "dulwich.client",
    "scmrepo.git", "snakemake.cli", "snakemake.report", "jinja2", "docutils.core",
)  # fmt: skip

# The client sends its arguments, folder, environment, ignored signals, process group and files to the server. It passes
# signals on to the new process, and ends with the status or signal of that process. It imports few modules.
CLIENT = """#!{python} -IS
import _signal, _socket, array, marshal, os, sys
arguments = sys.argv[1:]
if module := {programs}[os.path.basename(sys.argv[0])]:
    arguments = ["-m", module, *arguments]
plain = {{key for key in os.environ if key.startswith("PYTHON")}} <= {variables}
# code of multiprocessing passes open files
supported = arguments[:1] == ["-m"] or (arguments[:1] == ["-c"] and "multiprocessing" not in arguments[1])
one_thread = os.environ.get("OMP_NUM_THREADS") == "1" or not arguments[1:2] or not arguments[1].startswith("stages.")
try:
    if not supported or not plain or not one_thread:
        raise OSError
    server = _socket.socket(_socket.AF_UNIX)
    server.connect({address!r})
except OSError:
    os.execv({python!r}, [{python!r}, *arguments])
ignored = [number for number in {requests} if _signal.getsignal(number) == _signal.SIG_IGN]
group = os.getpgid(0) if os.getsid(0) != os.getpid() else 0
request = marshal.dumps((arguments, os.getcwd(), dict(os.environ), ignored, group))
files = array.array("i", [0, 1, 2])
server.sendmsg([len(request).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
server.sendall(request)
child = int.from_bytes(server.recv(4), "big")
for number in {requests}:
    if number not in ignored:
        _signal.signal(number, lambda number, frame: os.kill(child, number))
status = int.from_bytes(server.recv(4) or b"\\0\\0\\0\\1", "big", signed=True)
if status < 0:
    if status != -9:
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""

_leases: list[socket.socket] = []


def find_program(name: str) -> str:
    """Return the path of the preloaded program `name`; the ordinary program without FOLDER or outside Linux."""
    if FOLDER not in os.environ or sys.platform != "linux":
        return sys.executable if name == "python" else name
    folder = Path(os.environ[FOLDER])
    address = str(folder / "socket")
    if not _leases:
        lease = socket.socket(socket.AF_UNIX)
        with FileLock(folder / "lock"):
            try:
                lease.connect(address)
            except OSError:  # the server has not started, or has ended
                (folder / "socket").unlink(missing_ok=True)
                _start_server(folder, address)
                lease.connect(address)
        lease.sendall(LEASE)
        _leases.append(lease)  # the lease lasts until this process ends
    return str(folder / name)


def _start_server(folder: Path, address: str) -> None:
    """Write the client programs, and start the server in a new process."""
    text = CLIENT.format(
        python=sys.executable, programs=PROGRAMS, variables=VARIABLES, address=address, requests=REQUESTS
    )
    for name in PROGRAMS:
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)  # the first requests wait for the imports
    os.set_inheritable(listener.fileno(), True)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MLFLOW_"))}
    subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno()), *MODULES],
        env=plain | {"OMP_NUM_THREADS": "1"}, cwd=folder, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
    )  # fmt: skip
    listener.close()


class Server:
    """The server's connections: leases of test processes, and clients by the id of their forked process."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.leases: set[socket.socket] = set()
        self.clients: dict[int, socket.socket] = {}
        self.waiting = selectors.DefaultSelector()
        self.waiting.register(listener, selectors.EVENT_READ)
        # a pipe that becomes readable when a child ends
        self.child_pipe, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self.waiting.register(self.child_pipe, selectors.EVENT_READ)

    def serve(self) -> tuple[list[str], str, dict[str, str], list[int], int, list[int]] | None:
        """Answer requests until the last lease ends, then return None. A forked child returns its request and files."""
        while True:
            for key, _ in self.waiting.select():
                if key.fileobj is self.listener:
                    if request := self._accept():
                        return request
                elif key.fileobj == self.child_pipe:
                    os.read(self.child_pipe, 4096)
                    self._report_ends()
                elif key.fileobj.fileno() >= 0:  # not closed by `_report_ends` in this round
                    self._end_connection(key.fileobj)
            if not self.leases:
                return None

    def _accept(self) -> tuple[list[str], str, dict[str, str], list[int], int, list[int]] | None:
        connection, _ = self.listener.accept()
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        if head == LEASE:
            self.leases.add(connection)
        else:
            length, content = int.from_bytes(head, "big"), b""
            while len(content) < length and (part := connection.recv(length - len(content))):
                content += part
            if (pid := os.fork()) == 0:
                return (*marshal.loads(content), files)
            for file in files:
                os.close(file)
            self.clients[pid] = connection
            with suppress(OSError):
                connection.sendall(pid.to_bytes(4, "big"))
        self.waiting.register(connection, selectors.EVENT_READ)
        return None

    def _report_ends(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if connection := self.clients.pop(pid, None):
                    with suppress(OSError):
                        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
                    self._close_connection(connection)

    def _end_connection(self, connection: socket.socket) -> None:
        """Close the connection of a client or a lease that ended; kill the client's process."""
        for pid, client in self.clients.items():
            if client is connection:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.leases.discard(connection)
        self.clients = {pid: client for pid, client in self.clients.items() if client is not connection}
        self._close_connection(connection)

    def _close_connection(self, connection: socket.socket) -> None:
        self.waiting.unregister(connection)
        connection.close()

    def close(self) -> None:
        """Close all connections, in a child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for key in list(self.waiting.get_map().values()):
            os.close(key.fd)
        self.waiting.close()


def run_python(arguments: list[str], folder: str, environment: dict[str, str], ignored: list[int], group: int) -> int:
    """Run `python ARGUMENTS`, a module or code, in this forked process; return its exit status."""
    if group:
        os.setpgid(0, group)
    else:
        os.setsid()
    sys.executable = str(Path.cwd() / "python")  # the server's folder
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number in REQUESTS:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else default)
    paths = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [folder, *map(os.path.abspath, paths)]
    option, target, *rest = arguments
    sys.argv = [target if option == "-m" else option, *rest]
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    if environment.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)
    importlib.invalidate_caches()
    try:
        if option == "-m":
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = main_module = ModuleType("__main__")
            exec(compile(target, "<string>", "exec"), vars(main_module))
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return 130
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    """Import the packages, and fork a process for each client."""
    for number in REQUESTS[::2]:  # a terminal sends Ctrl-C and its hang-up to the clients, too
        signal.signal(number, signal.SIG_IGN)
    del sys.path[0]  # the tests' own folder
    for name in sys.argv[2:]:
        with suppress(ImportError):
            importlib.import_module(name)
    if registry := sys.modules.get("numba.core.registry"):
        for context in (registry.cpu_target.typing_context, registry.cpu_target.target_context):
            context.refresh()  # numba refreshes once in a process, for longer than a small training
    gc.collect()
    gc.freeze()
    server = Server(socket.socket(fileno=int(sys.argv[1])))
    request = server.serve()
    if request is None:
        return
    server.close()
    *arguments, files = request
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    status = 1
    try:
        status = run_python(*arguments)
        threading._shutdown()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
