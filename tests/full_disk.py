"""Stages on a full and on a read-only disk: they print one line, and succeed once the disk has room."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stage_interruption import StageWork, Start, make_work, start_stage

ROOM = "size=256m"
PAGE = 4096  # bytes


@contextmanager
def mount_small_disk(folder: Path) -> Iterator[None]:
    """Mount a disk in memory at `folder`. Raises PermissionError where this process may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", ROOM, "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PermissionError(f"expected a process that may mount a disk, got: {error}; run it as root") from None
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def mount_read_only(folder: Path) -> Iterator[None]:
    """Make `folder` read-only. Raises PermissionError where this process may not mount."""
    try:
        subprocess.run(["mount", "--bind", folder, folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PermissionError(f"expected a process that may mount a folder, got: {error}; run it as root") from None
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def try_full_disk(
    world: Path, disk: Path, name: str, shares: tuple[float, ...], start: Start = start_stage
) -> Iterator[str]:
    """Run a stage with room for each share of its outputs, and on a read-only disk, and yield its fault or "".

    A stage without fault prints one line about the disk, exits with 2, and damages no older file. It succeeds once the
    disk has room. Raises RuntimeError where the stage fails with room.
    """
    work, log = make_work(world, disk, name), world / "data" / f"{name}.log"
    if status := start(world, work.arguments, log).wait():
        raise RuntimeError(f"{name}: exit status {status} with room: {log.read_text()[-1000:]}")
    files = [path for path in (disk / name).rglob("*") if path.is_file()]
    expected, pages = work.outputs(), sum(-(-path.stat().st_size // PAGE) for path in files)
    for share in shares if pages > 1 else ():  # a disk has at least one page
        work.clear()
        _remount(disk, f"size={max(1, int(pages * share)) * PAGE}")
        yield _find_fault(work, disk, expected, "the disk is full", start)
    for outputs in ("none", "older"):
        if outputs == "none":
            work.clear()
        _remount(disk, "ro")
        yield _find_fault(work, disk, expected, "the file system is read-only", start)
    work.clear()


def _find_fault(work: StageWork, disk: Path, expected: dict[str, str], message: str, start: Start) -> str:
    log, older = work.world / "data" / f"{work.name}.log", work.outputs()
    status = start(work.world, work.arguments, log).wait()
    reports = [line for line in log.read_text().splitlines() if message in line]
    partial = [name for name, digest in work.outputs().items() if digest not in (expected.get(name), older.get(name))]
    _remount(disk, f"rw,{ROOM}")
    if status != 2 or len(reports) != 1 or "Traceback" in log.read_text():
        return f"{work.name}: {message}, exit status {status}: {log.read_text()[-300:]}"
    if partial:
        return f"{work.name}: {message}, and partial files remain: {', '.join(partial)}"
    if status := start(work.world, work.arguments, log).wait():
        return f"{work.name}: exit status {status} once the disk has room: {log.read_text()[-300:]}"
    return "" if work.outputs() == expected else f"{work.name}: other files than with room"


def _remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)
