"""Standard output whose reader has gone, as `| head` leaves it."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def closed_output() -> Iterator[None]:
    """Let standard output be a pipe that nobody reads, within the block."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", 1, encoding="utf-8") as output, contextlib.redirect_stdout(output):
        yield
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # discards output that a test left unwritten
