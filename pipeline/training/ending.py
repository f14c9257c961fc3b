"""A request to end, as clusters send it some seconds before they kill: a training may save a checkpoint first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def awaited() -> Iterator[Callable[[], bool]]:
    """Within the block SIGTERM ends nothing: what is given says whether one came. Only the main thread gets any."""
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
