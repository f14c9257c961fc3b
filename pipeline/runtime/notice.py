"""Requests to end, by a scheduler, a closed terminal, Ctrl-C, or because DVC or Snakemake is no more.

They raise `Stopped` at once, but where work is first brought to a point from which it can go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

REQUESTS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
POLL = 0.5  # seconds between two looks at who started this process
STEP = 4.0  # seconds that a request waits for the end of a step
END = 8.0  # seconds that processes have to end before they are killed
SAME = 2.0  # seconds within which the same signal is one request: a process group has it, and each caller passes it on
MAKE = ("make", "gmake")
CALLERS = (*MAKE, "dvc", "snakemake", "pipeline.workflow.repro", "pipeline.workflow.run_dvc", "stages.sweep")

Handler = Callable[[int, FrameType | None], None]


class Stopped(KeyboardInterrupt):
    """A request to end, by the signal `request`."""

    def __init__(self, request: signal.Signals) -> None:
        super().__init__(request.name)
        self.request = request


class _State:
    waits = False  # for the end of a step
    asked: signal.Signals | None = None
    when = 0.0
    timer: threading.Timer | None = None  # of the request to end the step, too

    @classmethod
    def again(cls, request: signal.Signals) -> bool:
        """Whether this is the same request as the last one; it is kept."""
        last, cls.asked, now = cls.asked, request, time.monotonic()
        if last == request and now - cls.when < SAME:
            return True
        cls.when = now
        return False


@contextmanager
def heeded() -> Iterator[None]:
    """Requests to end raise Stopped in the block, also when the caller, DVC or Snakemake, has died."""
    _State.asked = None
    with _handled_by(_heed):
        yield


@contextmanager
def noted() -> Iterator[Callable[[], signal.Signals | None]]:
    """Keep the first request to end and raise nothing: for a process that has others to end before itself.

    The yielded function returns that request, or None.
    """
    requests: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        _State.again(request := signal.Signals(number))
        requests.append(request)

    with _handled_by(note):
        yield lambda: requests[0] if requests else None


@contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # nohup is somebody's wish; that SIGINT is ignored is the habit of a shell that starts something in the background
    numbers = [number for number in REQUESTS if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    over = threading.Event()
    if links := _links():
        threading.Thread(target=_watch, args=(links, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def postponed() -> Iterator[Callable[[], bool]]:
    """A request to end, the first one, waits for the end of the block, at most STEP; who works there can ask for it.

    Who sees that there was one saves what is to be saved and leaves the block, which raises Stopped.
    """
    _State.waits, _State.asked = True, None
    try:
        yield lambda: _State.asked is not None
        if _State.asked is not None:
            raise Stopped(_State.asked)
    finally:
        _State.waits = False
        if _State.timer is not None:
            _State.timer.cancel()


def _heed(number: int, frame: FrameType | None) -> None:
    request, first = signal.Signals(number), _State.asked is None
    if _State.again(request):
        return
    if not (_State.waits and first):
        raise Stopped(request)
    _State.timer = threading.Timer(STEP, os.kill, [os.getpid(), request])
    _State.timer.daemon = True
    _State.timer.start()


def request_of(status: int) -> signal.Signals | None:
    """The request that an exit status tells of: a process that a signal ended, or one that left with 128 + signal."""
    return next((request for request in REQUESTS if status in (-request, 128 + request)), None)


def awaited(process: subprocess.Popen[Any], asked: Callable[[], signal.Signals | None]) -> int:
    """The exit status of `process`; raises Stopped where this process or `process` was asked to end.

    Nothing that `process` started is then alive.
    """
    while (status := process.poll()) is None and not asked():
        time.sleep(0.05)
    if request := asked() or request_of(status or 0):
        end_below(process.pid)
        process.wait()
        raise Stopped(request)
    return status or 0


def end_below(pid: int | None = None, request: signal.Signals = signal.SIGTERM) -> None:
    """Ask process `pid` and all that it started to end, or all that this process started; kill after END who has not.

    Where the system has it (`adopt`), that includes processes whose parent has ended.
    """
    import psutil

    asked: set[psutil.Process] = set()
    deadline = time.monotonic() + END
    while True:
        found = {process for process in asked | set(_below(pid)) if _alive(process)}
        late = time.monotonic() - deadline
        if not found or late > 1:  # a process that the kernel does not let go ends later
            return
        for process in sorted(found if late > 0 else found - asked, key=_age):
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL if late > 0 else request)
        asked |= found
        time.sleep(0.05)


def _below(pid: int | None) -> list[Any]:
    import psutil

    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [*([] if pid is None else [process]), *process.children(recursive=True)]
    return []


def _alive(process: Any) -> bool:
    import psutil

    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _age(process: Any) -> float:
    """When it began: a parent is asked before its children, so that it starts no others."""
    return float(process.create_time())


def adopt() -> None:
    """Become the parent of what descendants leave behind, so that `end_below` finds it; on Linux."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def end_with_children(what: str) -> None:
    """From now on a request to end ends this process and all that it started, at once; no process begins any more.

    For a program of others, whose own ways would first let work end that takes hours.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for each in REQUESTS:
            signal.signal(each, signal.SIG_IGN)
        subprocess.Popen.__init__ = _refuse  # type: ignore[method-assign]  # other threads go on
        print(f"{what}: ended by {signal.Signals(number).name}; the same command goes on from here", file=sys.stderr)
        sys.stderr.flush()
        quiet = os.open(os.devnull, os.O_WRONLY)  # that each of them fails is no news
        for stream in (1, 2):
            os.dup2(quiet, stream)
        end_below(request=signal.Signals(number))
        os._exit(128 + number)

    adopt()
    for each in REQUESTS:
        if each == signal.SIGINT or signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, end)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise OSError("this process is asked to end and starts nothing any more")


def _links() -> dict[int, int]:
    """Of this process and of those that called it, up to the outermost of CALLERS: the process above."""
    import psutil

    links: dict[int, int] = {}
    found: dict[int, int] = {}
    with suppress(psutil.Error):
        process = psutil.Process()
        for above in process.parents():
            found[process.pid] = above.pid
            words = above.cmdline()[:4]
            if any(Path(word).name in CALLERS or word in CALLERS for word in words):
                links = dict(found)
            elif words[1:2] != ["-c"] and "-c" not in words:  # a shell between them
                break
            process = above
    return links


def _watch(links: dict[int, int], over: threading.Event) -> None:
    import psutil

    caller = links[os.getpid()]
    while not over.wait(POLL):
        try:
            intact = all(psutil.Process(pid).ppid() == above for pid, above in links.items())
        except psutil.Error:
            intact = False
        if _State.asked is not None:
            return
        if not intact:
            print("what started this stage has ended, so it ends, too", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if request := _waits_to_end(caller):
            os.kill(os.getpid(), request)
            return


def _waits_to_end(pid: int) -> signal.Signals | None:
    """The signal of which GNU Make is about to die: it passes SIGINT and SIGHUP on to nobody, and waits for children.

    Linux shows that such a signal is blocked while its handler waits.
    """
    try:
        if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() not in MAKE:
            return None
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        blocked = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
    except (OSError, StopIteration, ValueError):
        return None
    return next((request for request in REQUESTS if blocked >> (request - 1) & 1), None)
