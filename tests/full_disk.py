"""Stages on a full and on a read-only disk: they print one line, and continue when there is room."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interrupted import Start, Work, started, work_of

ROOM = "size=256m"
PAGE = 4096  # bytes


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a disk in memory at `folder`. Raises PermissionError where this process may not."""
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
def read_only(folder: Path) -> Iterator[None]:
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


def filled(world: Path, disk: Path, name: str, shares: tuple[float, ...], start: Start = started) -> Iterator[str]:
    """Run a stage with room for each share of its outputs, and on a read-only disk, and yield its fault or "".

    It has no fault where it prints one line, exits with 2, damages no older file, and succeeds once there is room.
    """
    work, log = work_of(world, disk, name), world / "data" / f"{name}.said"
    if status := start(world, work.words, log).wait():
        raise RuntimeError(f"{name}, with room, ended with {status}: {log.read_text()[-1000:]}")
    files = [path for path in (disk / name).rglob("*") if path.is_file()]
    whole, pages = work.outputs(), sum(-(-path.stat().st_size // PAGE) for path in files)
    for share in shares if pages > 1 else ():  # a disk has one page at least
        work.clear()
        _mount_again(disk, f"size={max(1, int(pages * share)) * PAGE}")
        yield _problem(work, disk, whole, "the disk is full", start)
    for share in ("empty", "older"):
        if share == "empty":
            work.clear()
        _mount_again(disk, "ro")
        yield _problem(work, disk, whole, "nothing can be written there", start)
    work.clear()


def _problem(work: Work, disk: Path, whole: dict[str, str], line: str, start: Start) -> str:
    log, before = work.world / "data" / f"{work.name}.said", work.outputs()
    status = start(work.world, work.words, log).wait()
    reports = [each for each in log.read_text().splitlines() if line in each]
    wrong = [name for name, digest in work.outputs().items() if digest not in (whole.get(name), before.get(name))]
    _mount_again(disk, f"rw,{ROOM}")
    if status != 2 or len(reports) != 1 or "Traceback" in log.read_text():
        return f"{work.name}: {line}, and it ended with {status}: {log.read_text()[-300:]}"
    if wrong:
        return f"{work.name}: {line}, and parts are left: {', '.join(wrong)}"
    if status := start(work.world, work.words, log).wait():
        return f"{work.name}: with room again it ended with {status}: {log.read_text()[-300:]}"
    return "" if work.outputs() == whole else f"{work.name}: other files than with room"


def _mount_again(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)
