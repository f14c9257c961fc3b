"""Exported models that are killed while they are written, damaged, or made by someone who means harm."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path

from pipeline.errors import UserError
from saywhich.export import export
from saywhich.places import EXPORTED, place_of

WRITES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")  # names of audit events
KILLED = 9


def killed_exports(model: Path, out: Path, points: Iterable[int] | None = None) -> Iterator[str]:
    """What fell short of each export that was killed before its n-th write, and of the export after it.

    `out` holds an older export. `points`: which writes; None: all that an export makes.
    """
    older = (out / EXPORTED).read_bytes()
    for point in count() if points is None else points:
        if not _killed(lambda: export(model, out), point):
            if points is None:
                return
            continue
        try:
            place_of(out)
            found = (out / EXPORTED).read_bytes()
            export(model, out)
        except (UserError, OSError) as error:
            yield f"before write {point}: {error}"
            continue
        left = [path.name for path in out.parent.iterdir() if path.name.startswith(".")]
        yield (
            f"before write {point}: {left} is left" if left else "" if found == older else "another export stood there"
        )


def _killed(work: Callable[[], object], point: int) -> bool:
    """Do `work` in another process that ends before its n-th write, if there is one; whether it did."""
    child = os.fork()
    if child == 0:
        counted = count()

        def ended(event: str, arguments: tuple) -> None:
            writes = event in WRITES or (
                event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
            )
            if writes and next(counted) == point:
                os._exit(KILLED)

        try:
            sys.addaudithook(ended)
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED
