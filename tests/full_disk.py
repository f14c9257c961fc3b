"""Stages on a full and on a read-only disk: they print one line, and succeed once the disk has room."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interrupted import StageWork, Start, make_work, start_stage

ROOM = "size=256m"
PAGE = 4096  # bytes


@contextmanager
def mount_small_disk(folder: Path) -> Iterator[None]:
    """Mount a disk in memory at `folder`. Raises PermissionError where this process may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", ROOM, "tmpfs", folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PermissionError(f"no disk can be mounted here: {error}") from None
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
        raise PermissionError(f"nothing can be mounted here: {error}") from None
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def try_full_disk(
    world: Path, disk: Path, name: str, shares: tuple[float, ...], start: Start = start_stage
) -> Iterator[str]:
    """Run a stage with room for each share of its outputs, and on a read-only disk, and yield its fault or "".

    A stage without fault prints one line, exits with 2, damages no older file, and succeeds once the disk has room.
    """
    work, log = make_work(world, disk, name), world / "data" / f"{name}.said"
    if status := start(world, work.words, log).wait():
        raise RuntimeError(f"{name}: exit status {status} with room: {log.read_text()[-1000:]}")
    files = [path for path in (disk / name).rglob("*") if path.is_file()]
    whole, pages = work.outputs(), sum(-(-path.stat().st_size // PAGE) for path in files)
    for share in shares if pages > 1 else ():  # the smallest disk has one page
        work.clear()
        _remount(disk, f"size={max(1, int(pages * share)) * PAGE}")
        yield _find_fault(work, disk, whole, "the disk is full", start)
    for share in ("empty", "older"):
        if share == "empty":
            work.clear()
        _remount(disk, "ro")
        yield _find_fault(work, disk, whole, "the file system is read-only", start)
    work.clear()


def _find_fault(work: StageWork, disk: Path, whole: dict[str, str], line: str, start: Start) -> str:
    log, before = work.world / "data" / f"{work.name}.said", work.outputs()
    status = start(work.world, work.words, log).wait()
    reports = [each for each in log.read_text().splitlines() if line in each]
    wrong = [name for name, digest in work.outputs().items() if digest not in (whole.get(name), before.get(name))]
    _remount(disk, f"rw,{ROOM}")
    if status != 2 or len(reports) != 1 or "Traceback" in log.read_text():
        return f"{work.name}: {line}, exit status {status}: {log.read_text()[-300:]}"
    if wrong:
        return f"{work.name}: {line}, and partial files remain: {', '.join(wrong)}"
    if status := start(work.world, work.words, log).wait():
        return f"{work.name}: exit status {status} once the disk has room: {log.read_text()[-300:]}"
    return "" if work.outputs() == whole else f"{work.name}: other files than with room"


def _remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)
