"""Exit statuses of commands, and one-line messages for errors that a user can fix."""

from __future__ import annotations

import atexit
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from pipeline.errors import UserError, escape_line
from pipeline.runtime import (
    home,  # noqa: F401 (sets HOME, which libraries need)
    signals,
)

USER_ERROR = 2  # exit status of a command that has reported an error in one line
PROBLEMS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota of the disk is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is missing",
    errno.EPERM: "permission is missing",
    errno.ENOTDIR: "expected a folder, found a file",
    errno.EEXIST: "expected a folder, found a file",
    errno.EISDIR: "expected a file, found a folder",
    errno.EIO: "the disk cannot be read or written",
}


def report_failure(name: str, error: UserError | OSError) -> int:
    """Print the error in one line and return USER_ERROR, the exit status of the command `name`.

    An OSError without a number is raised again: a library raised it, not a system call.
    """
    if isinstance(error, UserError):
        print(error, file=sys.stderr)
        return USER_ERROR
    if error.errno is None:
        raise error
    print(describe_os_error(name, error), file=sys.stderr)
    return USER_ERROR


def run_command(name: str, work: Callable[[], int | None]) -> int:
    """Run `work` and return the exit status of the command `name`.

    The status is 0 or the result of `work`. It is 2 for a user error or a numbered error of the system, reported in one
    line. After a request to end, it is 128 + signal, also where an error of another kind hides the request: 130 for
    Ctrl-C, 143 for SIGTERM. SystemExit, and an error of another kind without a request, are raised again.
    """
    with signals.raise_requests():
        try:
            return work() or 0
        except SystemExit:
            raise
        except BaseException as error:
            if isinstance(error, UserError) or (isinstance(error, OSError) and error.errno is not None):
                return report_failure(name, error)
            # the request may have gone to a child process; a library may turn StopRequest into another error
            request = error.request if isinstance(error, signals.StopRequest) else signals.get_last_request()
            if request is not None:
                print(f"{name}: ended by {request.name}; run the same command to continue", file=sys.stderr)
                return 128 + request
            if not isinstance(error, KeyboardInterrupt):
                raise
            print(f"{name}: interrupted", file=sys.stderr)
            return 130


def end_process(status: int) -> NoReturn:
    """Run the exit handlers, flush the standard streams, and end this process with the exit status `status`.

    The interpreter does not clear its modules, which would take most of a second after an import of PyTorch and numba.
    """
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):  # the stream's reader has closed it
            stream.flush()
    os._exit(status)


def describe_os_error(name: str, error: OSError) -> str:
    """Describe an error of the system in the command `name`, in one line with a remedy."""
    problem = PROBLEMS.get(error.errno or 0, "the system refused the operation")
    return escape_line(f"{name}: {problem} ({error}); correct the problem and run the command again")
