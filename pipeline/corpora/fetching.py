"""Fetching of a corpus by its card: downloads, checks, unpacking, and a list of files that the user must get."""

from __future__ import annotations

import fcntl
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.corpora.archives import count_files, read_marker, unpack
from pipeline.corpora.cards import ArchiveSource, CardSource, DataCard, ManualSource
from pipeline.corpora.download import download, part_of
from pipeline.errors import UserError
from pipeline.runtime.files import sha256

Say = Callable[[str], None]


def fetch_corpus(card: DataCard, out: Path, downloads: Path, say: Say = print) -> None:
    """Put the files of a corpus into `out` as its profile expects them, and keep its archives in `downloads`.

    Existing files are neither downloaded nor unpacked again. A folder that was not unpacked here is not changed. Raises
    UserError where the disk is too small, a file is wrong or a file is still missing.
    """
    say(f"{card.title}: {card.images:,} images, {card.captions:,} captions")
    say(f"licence: {card.licence}")
    say(f"cite: {card.citation}")
    for broken in card.broken:
        say(f"known to be broken: {broken.what} → {broken.instead}")
    absent = [archive for archive in card.archives if not _filled(out / archive.to)]
    wanted = [archive for archive in absent if archive.url]
    brought = [archive for archive in absent if not archive.url and (downloads / archive.file).exists()]
    if wanted or brought:
        with _alone(downloads):
            _announce(wanted, brought, out, downloads, say)
            for archive in wanted + brought:
                path = downloads / archive.file
                if archive.url:
                    download(archive.url, path, archive.bytes, archive.sha256)
                    source = {"url": archive.url, "sha256": archive.sha256}
                else:
                    source = {"sha256": sha256(path)}
                    say(f"{archive.file}: SHA-256 {source['sha256']}; no digest is published, so it is not checked")
                to, files, most = out / archive.to, archive.files, archive.unpacked
                unpack(path, archive.members, to, files=files, most_bytes=most, source=source)
    profile = _check(card, out, downloads, say)
    kept = [downloads / archive.file for archive in card.archives if (downloads / archive.file).exists()]
    if kept:
        size = sum(path.stat().st_size for path in kept)
        say(f"{downloads}: the archives ({_shown(size)}) are not needed any more and may be removed")
    say(f"complete: {out}; now: make repro PROFILE={profile}")


def card_summary(card: DataCard) -> str:
    """Return three lines on a corpus: its size, its downloads and the files that the user must get, its licence."""
    size = sum(archive.bytes for archive in card.archives)
    brought: list[ArchiveSource | ManualSource] = [archive for archive in card.archives if not archive.url]
    brought += card.by_hand
    by_hand = [source.file for source in brought if not source.optional and not source.choice]
    choices: dict[str, list[str]] = {}
    for source in brought:
        if source.choice:
            choices.setdefault(source.choice, []).append(source.file)
    by_hand += [" or ".join(files) for files in choices.values()]
    return (
        f"{card.name}: {card.title}, {card.images:,} images, {card.captions:,} captions\n"
        f"  download: {_shown(size) if size else 'nothing'}; by hand: {', '.join(by_hand) or 'nothing'}\n"
        f"  licence: {card.licence}"
    )


def _announce(wanted: list[ArchiveSource], brought: list[ArchiveSource], out: Path, downloads: Path, say: Say) -> None:
    """Print the downloads and unpackings to come. Raises UserError where a disk is too small."""
    needs: list[tuple[Path, int]] = []  # folder, bytes
    for archive in wanted:
        there, part = downloads / archive.file, part_of(downloads / archive.file)
        have = archive.bytes if there.exists() else part.stat().st_size if part.exists() else 0
        needs.append((downloads, max(archive.bytes - have, 0)))
        here = f", of which {_shown(have)} are here" if have else ""
        say(f"fetching {archive.url}: {_shown(archive.bytes)}{here}")
    for archive in wanted + brought:
        to, most = out / archive.to, archive.unpacked
        needs.append((to, most))
        say(f"unpacking {archive.file} to {to}: {archive.files:,} files, up to {_shown(most)}")
    disks = {_existing(folder).stat().st_dev: _existing(folder) for folder, _ in needs}
    for device, folder in disks.items():
        size = sum(size for path, size in needs if _existing(path).stat().st_dev == device)
        free = shutil.disk_usage(folder).free
        say(f"disk of {folder}: {_shown(size)} needed, {_shown(free)} free")
        if size > free:
            raise UserError(
                f"{folder}: {_shown(size)} are needed and {_shown(free)} are free; make room, or name folders on other "
                "disks by --out and --downloads"
            )


def _check(card: DataCard, out: Path, downloads: Path, say: Say) -> str:
    """Compare the files in `out` with the card; return the profile that reads them.

    Prints each missing file and its source. Raises UserError where a required file is missing or a folder has changed.
    """
    missing: list[tuple[CardSource, Path]] = []
    complete: list[CardSource] = []
    for archive in card.archives:
        folder = out / archive.to
        if not _filled(folder):
            say(f"{'optional' if archive.optional else 'missing'}: {folder}")
            say(f"  put {archive.file} at {downloads / archive.file} and run this again, or its files there")
            say(f"  {archive.where}")
            missing.append((archive, folder))
            continue
        (files, size), marker = count_files(folder), read_marker(folder)
        if marker is not None and (files, size) != (marker["files"], marker["bytes"]):
            raise UserError(
                f"{folder}: {files:,} files of {size:,} bytes are there, and {marker['files']:,} of "
                f"{marker['bytes']:,} were unpacked; remove the folder and run this again"
            )
        least = math.ceil((archive.needed or archive.files) * (1 - archive.missing))
        if files < least:
            there = f"{files:,} files are there, and {least:,} are needed"
            raise UserError(f"{folder}: {there}; complete it, or move it away and run this again")
        say(f"there: {folder}, {files:,} files" + ("" if marker else ", not unpacked by this command"))
        complete.append(archive)
    for entry in card.by_hand:
        path = out / entry.file
        if path.is_file():
            say(f"there: {path}; no digest is published, so it is not checked here")
            complete.append(entry)
        else:
            say(f"{'optional' if entry.optional else 'missing'}: {path}")
            say(f"  {entry.where}")
            missing.append((entry, path))
    chosen = {source.choice: source.profile for source in complete if source.choice}
    absent = [(source, path) for source, path in missing if not source.optional and source.choice not in chosen]
    if absent:
        both = {source.choice for source, _ in absent if source.choice}
        hint = f" ({' or '.join(str(path) for source, path in absent if source.choice)}: one is enough)" if both else ""
        paths = ", ".join(str(path) for _, path in absent)
        raise UserError(f"{card.name}: still missing: {paths}{hint}; see above where to get it")
    return next(filter(None, chosen.values()), card.name)


def _filled(folder: Path) -> bool:
    return folder.is_dir() and any(os.scandir(folder))


def _existing(path: Path) -> Path:
    path = path.resolve()
    while not path.exists():
        path = path.parent
    return path


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock `folder`: two runs would write the same partial downloads."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{folder}: another run is fetching into it; wait for it") from None
        yield


def _shown(size: int) -> str:
    """Return a size with its unit, such as 13.5 GB."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
