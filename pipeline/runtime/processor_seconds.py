"""Processor seconds at each entry of a training's history, stored apart from the training's outputs.

Equal trainings write equal outputs, but need different times. A file of times is therefore named by the SHA-256 of the
history that it belongs to. No digest and no stage of DVC includes its folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.errors import UserError
from pipeline.runtime.files import read_checked, write_checked

FOLDER = "processor_seconds"  # in the folder of checkpoints


def format_history(history: Sequence[Mapping[str, object]]) -> str:
    """Return the text of history.jsonl, one line for each entry."""
    return "".join(json.dumps(entry) + "\n" for entry in history)


def write_processor_seconds(folder: Path, history: Sequence[Mapping[str, object]], seconds: Sequence[float]) -> None:
    """Write the processor seconds at each entry of `history`."""
    write_checked(_build_path(folder, history), json.dumps(list(seconds)).encode())


def read_processor_seconds(folder: Path, history: Sequence[Mapping[str, object]]) -> list[float] | None:
    """Return the processor seconds at each entry of `history`; None where this machine did not record them.

    Raises UserError for a damaged file, and for another number of times than entries.
    """
    try:
        seconds: list[float] = json.loads(read_checked(path := _build_path(folder, history)))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"{error}; remove it: the table of budgets is then written without these times") from None
    if len(seconds) != len(history):
        raise UserError(f"{path}: expected {len(history)} times, found {len(seconds)}; remove it")
    return seconds


def _build_path(folder: Path, history: Sequence[Mapping[str, object]]) -> Path:
    return folder / f"{hashlib.sha256(format_history(history).encode()).hexdigest()}.json"
