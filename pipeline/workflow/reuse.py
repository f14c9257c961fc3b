"""Reuse of finished work: a grid cell that equals a method's own run copies that run's files, and the reverse.

Each stage train, adapt or evaluate that DVC or the grid runs writes a note, named by the key of its work
(`Stage.compute_key`). The note has the folder of the outputs and their digests. A later run with the same key copies
the outputs if their digests still match. Stages that are run by hand, and stages of several processes, always run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from pipeline.runtime.files import atomic_path, compute_sha256, read_checked, write_checked
from pipeline.runtime.locks import hold_lock
from pipeline.runtime.untrusted import leads_outside
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage

TRAINING_OUTPUTS = ("weights.safetensors", "history.jsonl", "metrics.json")


def reuse_finished(
    run: Callable[[Stage], None], inputs: Callable[[Stage], Sequence[Path]], names: Sequence[str]
) -> Callable[[Stage], None]:
    """Return a function that copies the outputs `names` of a finished run with the stage's key, or else calls `run`.

    `inputs` returns the paths of the stage's inputs, which the key includes (`Stage.compute_key`).
    """

    def run_or_copy(stage: Stage) -> None:
        if not {"DVC_STAGE", "SAYWHICH_CELL"} & os.environ.keys() or "TORCHELASTIC_RUN_ID" in os.environ:
            return run(stage)
        input_paths = inputs(stage)
        note = stage.root / "checkpoints" / "finished" / f"{stage.compute_key(input_paths)}.json"
        with hold_lock(note.with_suffix(".lock"), stage.title):  # the second of two equal cells waits
            if source := _copy_finished(note, stage.out, names):
                print(f"{stage.title}: the same work was done before, in {source}", flush=True)
                tags = {"taken from": source}
                with recorder.record_run(
                    stage.title, stage.params.as_dict(), tags, stage.compute_digests(input_paths)
                ) as record:
                    record.log_outputs([stage.out / name for name in names])
            else:
                run(stage)
            write_note(note, stage.out, {name: compute_sha256(stage.out / name) for name in names})

    return run_or_copy


def write_note(path: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Write a note under a key: the folder of the finished work, its files and their SHA-256."""
    content = {"key": path.stem, "folder": str(folder), "files": dict(files)}
    write_checked(path, json.dumps(content).encode())


def read_note(path: Path) -> dict[str, Any]:
    """Return the folder and files of a note.

    Raises ValueError for a note that is damaged, has no checksum or another key, or that `write_note` did not write.
    """
    try:
        content: dict[str, Any] = json.loads(read_checked(path))
        if content["key"] != path.stem:
            raise ValueError(f"{path}: expected the key {path.stem}, found another key")
        texts = (content["folder"], *content["files"], *content["files"].values())
        if not all(isinstance(text, str) and text.isprintable() for text in texts):
            raise TypeError("expected texts of one line")
        if any(map(leads_outside, content["files"])):
            raise ValueError(f"{path}: has a file outside its folder")
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"{path}: is no note of finished work ({error})") from None
    return content


def _copy_finished(note: Path, out: Path, names: Sequence[str]) -> str | None:
    """Copy the files `names` of a note to `out`, and return their folder; None if the note or a file is unusable."""
    with suppress(OSError, ValueError, KeyError), ExitStack() as stack:
        content = read_note(note)
        for name in names:
            copy = stack.enter_context(atomic_path(out / name))
            shutil.copyfile(Path(content["folder"], name), copy)
            if compute_sha256(copy) != content["files"][name]:
                raise ValueError(f"{content['folder']}/{name} has changed")
        return str(content["folder"])
    return None
