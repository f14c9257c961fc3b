"""SHA-256 of files that later stages read: in sha256.json, in JSON files themselves, or in the header of weights."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.runtime.files import compute_sha256, write_atomically

CHECKSUMS = "sha256.json"
# key in metrics.json, copied to entries of cells.json: SHA-256 of captions.parquet beside metrics.json
CAPTIONS = "captions_sha256"
HISTORY = "history"  # key in the header of weights: name and SHA-256 of their training's history file
INPUTS = "inputs"  # key in the header of weights: SHA-256 of the files of DATA_FILES with which they were trained
DATA_FILES = ("prepared/vocabulary.json", "features/main/manifest.json")  # below the data folder
MAX_HEADER = 1 << 26  # bytes of the header of weights
ZERO_DIGEST = "0" * 64  # placeholder of a file's own SHA-256 while it is computed
OWN_DIGEST = re.compile(rb'"sha256": "([0-9a-f]{64})"\s*}\s*\Z')  # the last entry of a JSON file


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of all files below `folder`, except hidden files and any sha256.json, to its sha256.json."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    names = sorted(path.as_posix() for path in paths if path.name != CHECKSUMS and not _is_hidden(path))
    write_atomically(
        folder / CHECKSUMS, json.dumps({name: compute_sha256(folder / name) for name in names}, indent=1) + "\n"
    )


def check_checksums(folder: Path, remedy: str, required: bool = False, only: Collection[str] | None = None) -> None:
    """Raise UserError for a file that is missing or has changed. The message ends in `remedy`.

    `only`: check only these names; None: all in sha256.json. Names that are neither in sha256.json nor in the folder
    pass. A folder without sha256.json passes, unless it is `required`.
    """
    try:
        digests = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        if only is not None:
            digests = {name: digests.get(name) for name in only if name in digests or (folder / name).exists()}
        damaged = next((name for name, digest in digests.items() if _hash_file(folder / name) != digest), None)
    except FileNotFoundError:
        damaged = CHECKSUMS if required else None
    except (ValueError, AttributeError, TypeError, RecursionError):
        damaged = CHECKSUMS
    if damaged is not None:
        raise UserError(f"{folder / damaged}: is missing, or its bytes have changed; {remedy}")


def serialise_with_checksum(content: Mapping[str, Any]) -> str:
    """Serialise `content` with the SHA-256 of the file, computed with zeros in its place, as the last entry."""
    text = json.dumps({**content, "sha256": ZERO_DIGEST}, indent=2, ensure_ascii=False) + "\n"
    head, _, tail = text.rpartition(ZERO_DIGEST)
    return head + hashlib.sha256(text.encode()).hexdigest() + tail


def read_checksummed_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a file of `serialise_with_checksum`. Raises UserError if it is missing or has changed."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {remedy}") from None
    check_own_digest(content, path, remedy)
    parsed: dict[str, Any] = json.loads(content)
    del parsed["sha256"]
    return parsed


def check_own_digest(content: bytes, path: Path, remedy: str) -> None:
    """Raise UserError where `content`, the bytes of `path`, does not match the SHA-256 that it contains."""
    recorded = OWN_DIGEST.search(content)
    zeroed = (
        b"" if recorded is None else content[: recorded.start(1)] + ZERO_DIGEST.encode() + content[recorded.end(1) :]
    )
    if recorded is None or hashlib.sha256(zeroed).hexdigest().encode() != recorded[1]:
        raise UserError(f"{path}: has no SHA-256 at its end, or its bytes have changed; {remedy}")


def check_captions(metrics: Path, entry: Any) -> None:
    """Raise UserError where the captions beside the file `metrics` do not match the digest in its `entry`.

    Missing captions pass, and an entry without a digest passes, too.
    """
    captions = metrics.with_name("captions.parquet")
    digest = entry.get(CAPTIONS) if isinstance(entry, Mapping) else None
    if digest is not None and _hash_file(captions) not in (None, digest):
        raise UserError(f"{captions}: was not written with {metrics}; run their stage again")


def check_history(weights: Path) -> None:
    """Raise UserError where the history file beside `weights` does not match the digest in their header.

    Weights without a recorded history and a missing history file pass. Damaged weights pass, too, because their reader
    reports them.
    """
    match _read_header_entry(weights, HISTORY):
        case [str(name), str(digest)] if _hash_file(history := weights.parent / Path(name).name) not in (None, digest):
            raise UserError(f"{weights}: is not from the same training as {history}; run their stage again")


def compute_data_digests(root: Path) -> dict[str, str]:
    """Return the SHA-256 of the files below the data folder `root` that fix the vocabulary and features of weights."""
    return {name: compute_sha256(root / name) for name in DATA_FILES}


def find_changed_input(weights: Path, root: Path) -> Path | None:
    """Return the first file below `root` that is missing or has changed since the training of `weights`, else None.

    Weights without digests of these files pass. Damaged weights pass, too, because their reader reports them.
    """
    entry = _read_header_entry(weights, INPUTS)
    digests = entry if isinstance(entry, dict) else {}
    return next((root / name for name in DATA_FILES if digests.get(name) not in (None, _hash_file(root / name))), None)


def _read_header_entry(weights: Path, key: str) -> Any:
    """Return the entry `key` of the header of `weights`; None where there is none."""
    try:
        with open(weights, "rb") as file:
            head = json.loads(file.read(min(int.from_bytes(file.read(8), "little"), MAX_HEADER)))
        return json.loads(head["__metadata__"]["agents"])[key]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _hash_file(path: Path) -> str | None:
    return compute_sha256(path) if path.is_file() else None
