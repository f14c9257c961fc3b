"""Requests to end, by a scheduler, a closed terminal, Ctrl-C, or because DVC or Snakemake is no more.

They raise `Stopped` at once, but where work is first brought to a point from which it can go on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

REQUESTS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
POLL = 0.5  # seconds between two looks at who started this process
CALLERS = ("dvc", "snakemake", "pipeline.workflow.repro", "stages.sweep")


class Stopped(KeyboardInterrupt):
    """A request to end, by the signal `request`."""

    def __init__(self, request: signal.Signals) -> None:
        super().__init__(request.name)
        self.request = request


class _State:
    waits = False  # for the end of a step
    asked: signal.Signals | None = None


@contextmanager
def heeded() -> Iterator[None]:
    """Requests to end raise Stopped in the block, also when the caller, DVC or Snakemake, has died."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # what nohup and a shell's & have made this process ignore stays ignored
    numbers = [number for number in REQUESTS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _heed) for number in numbers}
    over = threading.Event()
    if links := _links():
        threading.Thread(target=_watch, args=(links, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def postponed() -> Iterator[Callable[[], bool]]:
    """A request to end, the first one, waits for the end of the block; whether there was one can be asked.

    Who sees that there was one saves what is to be saved and leaves the block, which raises Stopped.
    """
    _State.waits, _State.asked = True, None
    try:
        yield lambda: _State.asked is not None
        if _State.asked is not None:
            raise Stopped(_State.asked)
    finally:
        _State.waits = False


def _heed(number: int, frame: FrameType | None) -> None:
    if _State.waits and _State.asked is None:
        _State.asked = signal.Signals(number)
        return
    raise Stopped(signal.Signals(number))


def _links() -> dict[int, int]:
    """Of this process and of those that called it, up to the outermost DVC or Snakemake: the process above."""
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

    while not over.wait(POLL):
        try:
            intact = all(psutil.Process(pid).ppid() == above for pid, above in links.items())
        except psutil.Error:
            intact = False
        if not intact:
            print("what started this stage has ended, so it ends, too", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            return
