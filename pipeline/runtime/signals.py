"""Requests to end, from a scheduler, a closed terminal, Ctrl-C, or the end of a calling program such as DVC.

In `raise_requests`, a request raises `StopRequest` at once, except during imports and in blocks that first save a
checkpoint. PyTorch aborts the process if an exception reaches the C++ code that initialises its modules.
"""

from __future__ import annotations

import _thread
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

REQUESTS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
POLL_SECONDS = 0.5  # seconds between checks that the calling process is alive
STEP_SECONDS = 4.0  # seconds that a request waits for the end of a training step
END_SECONDS = 8.0  # seconds that processes have to end before they are killed
REPEAT_SECONDS = 2.0  # equal signals within these seconds are one request: the process group and each caller send it
MAKE = ("make", "gmake")
CALLERS = (*MAKE, "dvc", "snakemake", "pipeline.workflow.repro", "pipeline.workflow.run_dvc", "stages.sweep")

Handler = Callable[[int, FrameType | None], None]


class StopRequest(KeyboardInterrupt):
    """Request to end, by the signal `request`."""

    def __init__(self, request: signal.Signals) -> None:
        super().__init__(request.name)
        self.request = request


class _State:
    """State of this process's requests to end."""

    waits = False  # whether a request waits for the end of a step
    request: signal.Signals | None = None  # the last request
    last_time = 0.0  # monotonic seconds at the last request that repeated no other
    step_ended: threading.Event | None = None  # unless this event is set within STEP_SECONDS, the request is repeated

    @classmethod
    def record_request(cls, request: signal.Signals) -> bool:
        """Store this request, and return whether it repeats the last one."""
        last, cls.request, now = cls.request, request, time.monotonic()
        if last == request and now - cls.last_time < REPEAT_SECONDS:
            return True
        cls.last_time = now
        return False


@contextmanager
def raise_requests(watch: bool = True) -> Iterator[None]:
    """Raise StopRequest in the block on a request to end; with `watch`, also when a caller (one of CALLERS) has ended.

    A destructor or a library's callback swallows exceptions. A StopRequest that is raised there is raised again later.
    """
    _State.request = None
    report = sys.unraisablehook
    sys.unraisablehook = partial(_repeat_swallowed_request, report)
    try:
        with _install_handler(_handle_request, watch):
            yield
    finally:
        sys.unraisablehook = report


def get_last_request() -> signal.Signals | None:
    """Return the last request to end since `raise_requests` or `postpone_requests` was entered, or None."""
    return _State.request


@contextmanager
def record_requests() -> Iterator[Callable[[], signal.Signals | None]]:
    """Record requests to end in the block without raising, for a process that must first end other processes.

    The yielded function returns the first request, or None.
    """
    requests: list[signal.Signals] = []

    def record(number: int, frame: FrameType | None) -> None:
        _State.record_request(request := signal.Signals(number))
        requests.append(request)

    with _install_handler(record):
        yield lambda: requests[0] if requests else None


@contextmanager
def block_requests() -> Iterator[None]:
    """Hold back requests to end until the end of the block.

    Processes that start in the block never receive requests. A request to the process group therefore ends no worker
    of a pool; the pool's owner ends the workers.
    """
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def end_with_parent() -> None:
    """End this process, a worker of a pool, as soon as the process that started it has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _install_handler(handler: Handler, watch: bool = True) -> Iterator[None]:
    """Handle requests to end by `handler` in the block; do nothing outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # an ignored SIGHUP is intended (nohup); an ignored SIGINT is only a shell's default for background processes
    numbers = [number for number in REQUESTS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    ended = threading.Event()
    if watch and (links := _find_callers()):
        threading.Thread(target=_watch_callers, args=(links, ended), daemon=True).start()
    # handlers are set last, since the caller cannot catch an error that a handler raises before the block
    previous_handlers = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        ended.set()
        for number, previous in previous_handlers.items():
            signal.signal(number, previous)


@contextmanager
def postpone_requests() -> Iterator[Callable[[], bool]]:
    """Postpone the first request to end until the end of the block, for at most STEP_SECONDS.

    The yielded function returns whether there was a request. After a request, the block saves its state and ends, and
    StopRequest is raised.
    """
    _State.waits, _State.request = True, None
    try:
        yield lambda: _State.request is not None
        if _State.request is not None:
            raise StopRequest(_State.request)
    finally:
        _State.waits = False
        if _State.step_ended is not None:
            _State.step_ended.set()


def _handle_request(number: int, frame: FrameType | None) -> None:
    request, first = signal.Signals(number), _State.request is None
    if _State.record_request(request):
        return
    if _State.waits and first:
        _State.step_ended = _send_later(request, STEP_SECONDS)
    elif _is_importing(frame):
        _send_again(request)
    else:
        raise StopRequest(request)


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a module is being imported at `frame`."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _repeat_swallowed_request(
    report: Callable[[sys.UnraisableHookArgs], object], unraisable: sys.UnraisableHookArgs
) -> None:
    """Send the request of a swallowed StopRequest again, and report other exceptions by `report`."""
    if isinstance(unraisable.exc_value, StopRequest):
        _send_again(unraisable.exc_value.request)
    else:
        report(unraisable)


def _send_again(request: signal.Signals) -> None:
    """Send a request that cannot be raised now to this process again after 0.05 seconds, as a new request."""
    _State.last_time = -float("inf")
    _send_later(request, 0.05)


def _send_later(request: signal.Signals, seconds: float) -> threading.Event:
    """Send `request` to this process after `seconds`, unless the returned event is set earlier."""
    cancelled = threading.Event()

    def send() -> None:
        if not cancelled.wait(seconds):
            os.kill(os.getpid(), request)

    _thread.start_new_thread(send, ())  # threading.Thread needs a lock that the interrupted code may hold
    return cancelled


def find_request(status: int) -> signal.Signals | None:
    """Return the request whose signal an exit status states, as -signal or 128 + signal; None for another status."""
    return next((request for request in REQUESTS if status in (-request, 128 + request)), None)


def wait_for_process(process: subprocess.Popen[Any], get_request: Callable[[], signal.Signals | None]) -> int:
    """Return the exit status of `process`. Raises StopRequest where this process or `process` was asked to end.

    Before the error is raised, `process` and its descendants are ended, except descendants whose parent has ended.
    """
    while (status := process.poll()) is None and not get_request():
        time.sleep(0.05)
    if request := get_request() or find_request(status or 0):
        end_descendants(process.pid)
        process.wait()
        raise StopRequest(request)
    return status or 0


def end_descendants(pid: int | None = None, request: signal.Signals = signal.SIGTERM) -> None:
    """Send `request` to process `pid` and its descendants; after END_SECONDS, kill the remaining processes.

    Without `pid`, the processes are the descendants of this process. On Linux, after `adopt_orphans`, they include
    processes whose parent has ended.
    """
    import psutil

    signalled: set[psutil.Process] = set()
    deadline = time.monotonic() + END_SECONDS
    while True:
        alive = {process for process in signalled | set(_list_descendants(pid)) if _is_alive(process)}
        late = time.monotonic() - deadline
        if not alive or late > 1:  # the kernel still holds the remaining processes: they end later
            return
        for process in sorted(alive if late > 0 else alive - signalled, key=_get_start_time):
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL if late > 0 else request)
        signalled |= alive
        time.sleep(0.05)


def _list_descendants(pid: int | None) -> list[Any]:
    """Return process `pid` and its descendants; without `pid`, only the descendants of this process."""
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [*([] if pid is None else [process]), *process.children(recursive=True)]
    return []


def _is_alive(process: Any) -> bool:
    import psutil

    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _get_start_time(process: Any) -> float:
    """Return the start time; in order of start, a parent gets the request before its children and starts no others."""
    return float(process.create_time())


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that `end_descendants` finds them; on Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def end_with_children(name: str) -> None:
    """End this process and its descendants at once on any later request to end; no new process starts then.

    Third-party programs would otherwise first finish hours of work.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for request in REQUESTS:
            signal.signal(request, signal.SIG_IGN)
        subprocess.Popen.__init__ = _refuse_process  # type: ignore[method-assign]  # other threads keep running
        message = f"{name}: ended by {signal.Signals(number).name}; run the same command to continue"
        with suppress(OSError):  # the terminal may be closed
            print(message, file=sys.stderr, flush=True)
        null = os.open(os.devnull, os.O_WRONLY)  # hides the error of each child
        for stream in (1, 2):
            os.dup2(null, stream)
        end_descendants(request=signal.Signals(number))
        os._exit(128 + number)

    adopt_orphans()
    for request in REQUESTS:
        if request == signal.SIGINT or signal.getsignal(request) != signal.SIG_IGN:
            signal.signal(request, end)


def _refuse_process(*_: object, **__: object) -> NoReturn:
    raise OSError("this process was asked to end and starts no more processes")


def _find_callers() -> dict[int, int]:
    """Return the parent's id of this process and of each calling process by id, up to the outermost of CALLERS."""
    import psutil

    links: dict[int, int] = {}
    chain: dict[int, int] = {}
    with suppress(psutil.Error):
        process = psutil.Process()
        for parent in process.parents():
            chain[process.pid] = parent.pid
            words = parent.cmdline()[:4]
            if any(Path(word).name in CALLERS or word in CALLERS for word in words):
                links = dict(chain)
            elif "-c" not in words:  # not a shell between two callers
                break
            process = parent
    return links


def _watch_callers(links: dict[int, int], ended: threading.Event) -> None:
    import psutil

    caller = links[os.getpid()]
    while not ended.wait(POLL_SECONDS):
        try:
            intact = all(psutil.Process(pid).ppid() == parent for pid, parent in links.items())
        except psutil.Error:
            intact = False
        if _State.request is not None:
            return
        if not intact:
            with suppress(OSError):  # the terminal may be closed
                print("ended: a program that started this one has ended", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if request := _find_blocked_request(caller):
            os.kill(os.getpid(), request)
            return


def _find_blocked_request(pid: int) -> signal.Signals | None:
    """Return the signal that GNU Make received and will end by; None without such a signal.

    Make passes on neither SIGINT nor SIGHUP: it waits for its children. While its handler waits, Linux shows the signal
    as blocked.
    """
    try:
        if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() not in MAKE:
            return None
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        blocked = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
    except (OSError, StopIteration, ValueError):
        return None
    return next((request for request in REQUESTS if blocked >> (request - 1) & 1), None)
