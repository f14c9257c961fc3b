"""Standard output whose reader is closed, as after `| head`."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def close_output() -> Iterator[None]:
    """Replace standard output by a pipe without a reader within the block."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", 1, encoding="utf-8") as output, contextlib.redirect_stdout(output):
        yield
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # discard the output that is still in the buffer
