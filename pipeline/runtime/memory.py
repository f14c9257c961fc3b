"""Control over the return of freed memory to the system, and errors of exhausted memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.errors import UserError

MEMORY_ERROR_TEXTS = ("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory")
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # parameters of mallopt(3)


def keep_freed() -> None:
    """Keep freed memory for the next step, which allocates the same sizes again. Only glibc supports this.

    By default large blocks go back to the system each time, and each new block costs a page fault for every 4 KiB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 64 << 20)


def return_freed() -> None:
    """Return freed memory to the system, where the C library is glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def is_memory_error(error: BaseException) -> bool:
    """Return whether an error reports exhausted memory; PyTorch raises RuntimeError for it."""
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in MEMORY_ERROR_TEXTS)


@contextmanager
def explain_memory_error(subject: str, remedy: str) -> Iterator[None]:
    """Raise UserError with `subject` and `remedy` in one line, where the block runs out of memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_memory_error(error):
            raise
        raise UserError(f"{subject}: too little memory; {remedy}") from None
