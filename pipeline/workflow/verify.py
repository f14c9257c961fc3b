"""`make verify`: a check that DVC's outputs, their cached copies and grid cells are unchanged since they were written.

All bytes are read. `dvc status` relies on a file's size, time and inode, and does not check DVC's cache. dvc.lock is
compared with dvc.yaml: every existing output must have a digest. A file that was added to an output's folder is a
problem, too. A missing cached copy is no problem. A cell is checked where a note has digests of its files.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config.reading import read_mapping
from pipeline.errors import UserError
from pipeline.runtime.command import run_command
from pipeline.runtime.files import compute_sha256
from pipeline.workflow.reuse import read_note

WORKFLOW, LOCK, CACHE = Path("dvc.yaml"), Path("dvc.lock"), Path(".dvc/cache/files/md5")
NOTES = Path("data/checkpoints/finished")  # notes of finished work, cells included, written by reuse.py
CELLS = "data/cells/"


def main() -> int:
    """Print a line for each problem, and return the exit status: 0 without a problem, else 1.

    A problem is a changed, added or missing file, a missing digest, or a damaged note or list of a folder's files. The
    status is 2 where dvc.lock or dvc.yaml is missing or cannot be parsed. The check ends there.
    """
    try:
        file_count, problem_count = 0, 0
        for problem in _find_problems():
            file_count += 1
            if problem:
                problem_count += 1
                print(problem)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{file_count - problem_count} of {file_count} files are unchanged")
    return 1 if problem_count else 0


def _find_problems() -> Iterator[str]:
    """Yield the problem of each checked file, or an empty text; print a line for each cell without a note.

    Where a note is damaged, no such line is printed. Raises UserError where dvc.lock or dvc.yaml is missing or cannot
    be parsed.
    """
    if not LOCK.exists():
        raise UserError(f"{LOCK}: no such file, so there are no outputs to check; run make repro first")
    if not WORKFLOW.exists():
        raise UserError(f"{WORKFLOW}: no such file; restore it by git checkout {WORKFLOW}")
    stages = read_mapping(LOCK).get("stages")
    lock_entries: dict[str, Any] = stages if isinstance(stages, dict) else {}
    yield from _find_missing_digests(lock_entries)
    for name, stage in lock_entries.items():
        for out in _list_outputs(stage):
            rerun = f"dvc repro --force --single-item {name}"
            try:
                files = list(_list_files(out))
            except UserError as error:  # the other outputs are still checked
                yield str(error)
                continue
            extra_files = _find_files(out) - {path for path, _ in files}
            for path in sorted(extra_files):
                yield f"{path}: was added to an output of {name}; move it elsewhere, or run {rerun}"
            for path, expected in files:
                yield _compare_digest(path, expected, f"an output of {name}; run {rerun}")
                if (cached_path := CACHE / expected[:2] / expected[2:]).exists():
                    yield _compare_digest(cached_path, expected, f"DVC's copy of {path}; remove it, then run {rerun}")
    notes, damage_lines = _read_newest_notes()
    yield from damage_lines
    for cell in sorted({path.parents[0] for path in Path(CELLS).glob("*/*/metrics.json")}):
        if str(cell) not in notes and not damage_lines:
            print(f"{cell}: no note has digests of its files; they were not checked")
    for note in notes.values():
        for name, expected in note["files"].items():
            path = Path(note["folder"], name)
            if path.is_file() and compute_sha256(path) == expected:
                yield ""
            else:
                yield f"{path}: missing or changed; remove the cell's folder, then run dvc repro"


def _find_missing_digests(lock_entries: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each existing output of a stage in dvc.yaml that has no digest in dvc.lock."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            outs = [(stage.addressing, Path(out.def_path)) for stage in repo.index.stages for out in stage.outs]
    except DvcException as error:
        raise UserError(
            f"{WORKFLOW} or {LOCK}: cannot be read ({error}); restore {WORKFLOW} by git checkout {WORKFLOW}, or run "
            f"make repro, which mends {LOCK}"
        ) from None
    for name, path in outs:
        if path.exists() and str(path) not in {out["path"] for out in _list_outputs(lock_entries.get(name))}:
            yield f"{LOCK}: has no digest of {path}, an output of {name}; run dvc repro --force --single-item {name}"


def _list_outputs(stage: Any) -> list[dict[str, Any]]:
    """Return the complete output entries of a stage in dvc.lock; a truncated dvc.lock has incomplete entries."""
    outs = [out for out in (stage.get("outs") if isinstance(stage, dict) else None) or [] if isinstance(out, dict)]
    expected = {"path", "md5", "size"}
    return [out for out in outs if expected | ({"nfiles"} if _is_folder(out) else set()) <= out.keys()]


def _is_folder(out: dict[str, Any]) -> bool:
    return str(out.get("md5")).endswith(".dir")


def _find_files(out: dict[str, Any]) -> set[Path]:
    """Return the files that are in an output's folder; none where the output is a file."""
    return {path for path in Path(out["path"]).rglob("*") if path.is_file()} if _is_folder(out) else set()


def _list_files(out: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the files of an output in dvc.lock, each with its MD5.

    Raises UserError where DVC's list of a folder's files is missing or damaged.
    """
    path, digest = Path(out["path"]), str(out["md5"])
    if not _is_folder(out):
        yield path, digest
        return
    listing = CACHE / digest[:2] / digest[2:]
    try:
        content = listing.read_bytes()
        if _compute_md5(listing) != digest.removesuffix(".dir"):
            raise ValueError
        for entry in json.loads(content):
            yield path / entry["relpath"], entry["md5"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{listing}: the list of the files of {path} is missing or damaged; if it exists, remove it, then run "
            "dvc commit"
        ) from None


def _compare_digest(path: Path, expected: str, description: str) -> str:
    if not path.is_file():  # also a folder whose digest in dvc.lock has lost its ending, .dir
        return f"{path}: is missing or is not a file: {description}"
    return "" if _compute_md5(path) == expected else f"{path}: has changed: {description}"


def _compute_md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _read_newest_notes() -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the newest note of each cell's folder, and a line for each damaged note."""
    newest: dict[str, dict[str, Any]] = {}
    damage_lines = []
    for path in sorted(NOTES.glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
        try:
            note = read_note(path)
            if note["folder"].startswith(CELLS) and Path(note["folder"]).is_dir():
                newest[note["folder"]] = note
        except (OSError, ValueError):
            damage_lines.append(
                f"{path}: is damaged, or of an older version; remove it, and the work that it records is done again"
            )
    return newest, damage_lines


if __name__ == "__main__":
    sys.exit(run_command("verify", main))
