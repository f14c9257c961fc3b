"""Exported models that are killed while they are written, damaged, or made by someone who means harm."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path

from damaged import Kind

import saywhich
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


def read_by(work: Callable[[], object], root: Path) -> list[Path]:
    """The files below `root` that `work` opens to read."""
    found: set[Path] = set()
    listening = [True]

    def opened(event: str, arguments: tuple) -> None:
        if event == "open" and listening and isinstance(arguments[0], str | Path):
            path = Path(arguments[0]).resolve()
            if path.is_relative_to(root.resolve()) and path.is_file():
                found.add(path)

    sys.addaudithook(opened)
    work()
    listening.clear()
    return sorted(found)


def model_files(name: str, model: Path, root: Path, photo: Path) -> Kind:
    """What `saywhich` reads of a trained model below `root`, and a digest of what it then says of a photo."""
    files = read_by(lambda: saywhich.load(model), root)
    files += [model / "weights.safetensors"] if model / "weights.safetensors" not in files else []

    def said(_: Path) -> str:
        loaded = saywhich.load(model)
        sight = loaded.see([photo])
        tensors = [
            *loaded.speaker.state_dict().values(),
            *loaded.listener.state_dict().values(),
            sight.pooled,
            sight.regions,
        ]
        words = "".join(str(caption) for caption in loaded.caption([photo]))
        return sha256(words.encode() + b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()

    return Kind(name, [(path, [other for other in files if other != path]) for path in files], said)
