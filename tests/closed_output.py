"""Standard output whose reader is closed, as after `| head`."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def close_output() -> Iterator[None]:
    """Redirect `sys.stdout` to a pipe without a reader in the block; file descriptor 1 is unchanged."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", 1, encoding="utf-8") as output, contextlib.redirect_stdout(output):
        yield
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # the rest of the buffer goes to /dev/null
