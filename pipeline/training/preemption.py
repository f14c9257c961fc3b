"""Handling of SIGTERM, which clusters send some seconds before they kill, so that training can save a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_request() -> Iterator[Callable[[], bool]]:
    """Defer SIGTERM within the block; yield a function that returns whether one arrived.

    Outside the main thread, SIGTERM is not handled and the function returns False.
    """
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        came.set()

    if threading.current_thread() is not threading.main_thread():
        yield came.is_set
        return
    before = signal.signal(signal.SIGTERM, note)
    try:
        yield came.is_set
    finally:
        signal.signal(signal.SIGTERM, before)
