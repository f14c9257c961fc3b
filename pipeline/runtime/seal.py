"""Digests of files, kept beside them: of all in a folder in a file that is written last, and of an evaluation's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.runtime.files import sha256, write_atomically

SEAL = "sha256.json"
CAPTIONS = "captions_sha256"  # in metrics.json and each entry of cells.json: of captions.parquet beside it


def seal(folder: Path) -> None:
    """Write the SHA-256 of every file in `folder`, but for hidden ones, to `folder`/sha256.json."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SEAL and path.name[0] != ".")
    write_atomically(folder / SEAL, json.dumps({path.name: sha256(path) for path in files}, indent=1) + "\n")


def check_seal(folder: Path, again: str) -> None:
    """UserError for a file that is missing or another one than was written; `again` says what writes it anew.

    A folder that was never sealed passes.
    """
    try:
        said = json.loads((folder / SEAL).read_text(encoding="utf-8"))
        wrong = next((name for name, digest in said.items() if _digest(folder / name) != digest), None)
    except FileNotFoundError:
        return
    except (ValueError, AttributeError, TypeError):
        wrong = SEAL
    if wrong is not None:
        raise UserError(f"{folder / wrong}: is missing, or its bytes are not those that were written; {again}")


def check_captions(metrics: Path, entry: Any) -> None:
    """UserError where the captions beside the file `metrics` are not those of its `entry`, which may not say."""
    captions = metrics.with_name("captions.parquet")
    said = entry.get(CAPTIONS) if isinstance(entry, Mapping) else None
    if said is not None and _digest(captions) not in (None, said):
        raise UserError(f"{captions}: is not the file that {metrics} was written with; run their stage again")


def _digest(path: Path) -> str | None:
    return sha256(path) if path.is_file() else None
