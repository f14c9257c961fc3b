"""Work is done once: a grid cell that equals a method's own run takes that run's files, or the run takes the cell's.

A run of DVC's or of the grid's leaves a note under the key of its work (`Stage.key`), where its outputs are and their
digests. Whoever has the same key later copies them, if they are still what they were. A stage that is run by hand
always works, and so does one of several processes.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from pipeline.runtime.files import atomic_path, read_checked, sha256, write_checked
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage

TRAINED = ("weights.safetensors", "history.jsonl", "metrics.json")


def once(
    run: Callable[[Stage], None], inputs: Callable[[Stage], Sequence[Path]], names: Sequence[str]
) -> Callable[[Stage], None]:
    """`run`, but where the same was done from the same `inputs`: its outputs `names` are copied to the stage's own."""

    def run_or_take(stage: Stage) -> None:
        if not {"DVC_STAGE", "SAYWHICH_CELL"} & os.environ.keys() or "TORCHELASTIC_RUN_ID" in os.environ:
            return run(stage)
        read = inputs(stage)
        note = stage.root / "checkpoints" / "finished" / f"{stage.key(read)}.json"
        with _alone(note.with_suffix(".lock")):  # two cells may do the same at once: the second waits, and takes it
            if source := _take(note, stage.out):
                print(f"{stage.title}: the same work was done before, in {source}", flush=True)
                tags = {"taken from": source}
                with recorder.run(stage.title, stage.params.plain(), tags, stage.digests(read)) as record:
                    record.outputs([stage.out / name for name in names])
            else:
                run(stage)
            write_note(note, stage.out, {name: sha256(stage.out / name) for name in names})

    return run_or_take


def write_note(path: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Write under a key that its work lies in `folder`: its files and their SHA-256."""
    content = {"key": path.stem, "folder": str(folder), "files": dict(files)}
    write_checked(path, json.dumps(content).encode())


def read_note(path: Path) -> dict[str, Any]:
    """Return the folder and the files of a note. ValueError where it is damaged, of another key, or unchecked."""
    said: dict[str, Any] = json.loads(read_checked(path))
    if said["key"] != path.stem:
        raise ValueError(f"{path}: is the note of another key, {said['key']}")
    return said


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """As the only process that does this work; where the file system has no locks, perhaps not."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w", encoding="utf-8") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _take(note: Path, out: Path) -> str | None:
    """The folder whose files were copied to `out`; None where there are none, or others than the note says."""
    with suppress(OSError, ValueError, KeyError), ExitStack() as files:
        said = read_note(note)
        for name, content in said["files"].items():
            copy = files.enter_context(atomic_path(out / name))
            shutil.copyfile(Path(said["folder"], name), copy)
            if sha256(copy) != content:
                raise ValueError(f"{said['folder']}/{name} is another one by now")
        return str(said["folder"])
    return None
