"""Output files of commands; an existing file is replaced only when the new one is complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pipeline.runtime.files import atomic_path


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Open `path` for writing; a plain file is written beside it and renamed when the block ends without an error.

    Pipes and devices are written directly. Raises OSError before the block where `path` cannot be written.
    """
    if path.exists() and not path.is_file():
        with open(path, "w", newline="", encoding="utf-8") as file:
            yield file
        return
    try:
        with atomic_path(path.resolve()) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            yield file
    except OSError as error:
        if str(error.filename).endswith(".part"):  # report the user's path, not the temporary one
            error.filename = str(path)
        raise
