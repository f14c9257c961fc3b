"""The end of every command: its exit status, and one line for what a user can mend."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable

from pipeline.errors import UserError, one_line
from pipeline.runtime import (
    home,  # noqa: F401 (for libraries that look for it)
    notice,
)

DISK = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk is full for you",
    errno.EROFS: "nothing can be written there",
    errno.EACCES: "this may not be read or written",
    errno.EPERM: "this may not be read or written",
    errno.ENOTDIR: "a file is where a folder is to be",
    errno.EEXIST: "a file is where a folder is to be",
    errno.EISDIR: "a folder is where a file is to be",
    errno.EIO: "the disk cannot be read or written",
}


def fail(name: str, error: UserError | OSError) -> int:
    """Print the error in one line and return 2, the exit status of the command `name`."""
    if isinstance(error, UserError):
        print(error, file=sys.stderr)
        return 2
    if error.errno is None:  # a library's own, which tells of no system call
        raise error
    print(refusal(name, error), file=sys.stderr)
    return 2


def finish(name: str, work: Callable[[], int | None]) -> int:
    """Run `work` and return the exit status of the command `name`.

    0 or what `work` returns; 2: a mistake of the user, or what the system refuses, told in one line; 128 and the
    number of a signal: asked to end, 130 for Ctrl-C, 143 for SIGTERM.
    """
    with notice.heeded():
        try:
            return work() or 0
        except (UserError, OSError) as error:
            return fail(name, error)
        except notice.Stopped as stopped:
            print(f"{name}: ended by {stopped}; the same command goes on from here", file=sys.stderr)
            return 128 + stopped.request
        except KeyboardInterrupt:
            print(f"{name}: interrupted", file=sys.stderr)
            return 130


def refusal(name: str, error: OSError) -> str:
    """What the system refused the command `name`, in one line."""
    problem = DISK.get(error.errno or 0, "the system refuses this")
    return one_line(f"{name}: {problem} ({error}); mend that and run it again")
