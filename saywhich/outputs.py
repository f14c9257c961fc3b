"""Outputs of commands: files, which replace an existing one only when they are complete, and printed lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from pipeline.errors import UserError
from pipeline.runtime.files import atomic_path


def check_outputs(*paths: str | Path | None, inputs: Iterable[str | Path | None] = ()) -> None:
    """Raise UserError, before a long run, for a file that cannot be written, is named twice, or is one of the `inputs`.

    Raises UserError for an existing photo or film, too. None stands for an output that was not requested.
    """
    from pipeline.readers.folder import PHOTO_EXTENSIONS  # imported here: NumPy and Pillow take 0.2 seconds

    taken = {Path(path).resolve() for path in inputs if path is not None}
    for path in (Path(path) for path in paths if path is not None):
        if path.is_dir():
            raise UserError(f"{path}: is a folder; name a file to write")
        if path.exists() and not path.is_file():
            continue  # a pipe or a device
        if (resolved := path.resolve()) in taken:
            raise UserError(f"{path}: is also an input or another output of this command; name another file to write")
        if path.exists() and path.suffix.lower() in PHOTO_EXTENSIONS:
            raise UserError(f"{path}: is a photo or film; name another file to write")
        taken.add(resolved)
        folder = next(parent for parent in path.parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
            problem = "cannot be written into" if folder.is_dir() else "is no folder"
            raise UserError(f"{path}: cannot be written, since {folder} {problem}; name another file")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines until the reader of standard output closes the pipe, as `| head` does."""
    try:
        for line in lines:
            print(line)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()


def drop_output() -> None:
    """Redirect standard output to the null device, so that the flush at Python's exit does not fail."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Open `path` for writing.

    A plain file is written under another name, and renamed when the block ends without an error. Pipes and devices are
    written directly. A byte of a file name that is not UTF-8 is written as JSON's escape. Raises OSError before the
    block where `path` cannot be written.
    """
    options: dict[str, Any] = {"newline": "", "encoding": "utf-8", "errors": "backslashreplace"}
    if path.exists() and not path.is_file():
        with open(path, "w", **options) as file:
            yield file
        return
    try:
        with atomic_path(path.resolve()) as temporary, open(temporary, "w", **options) as file:
            yield file
    except OSError as error:
        if str(error.filename).endswith(".part"):  # report the user's path, not the temporary one
            error.filename = str(path)
        raise
