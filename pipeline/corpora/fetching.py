"""Fetching of a corpus by its card: downloads, checks, unpacking, and a list of files that the user must get."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.corpora.archives import count_files, read_marker, unpack
from pipeline.corpora.cards import ArchiveSource, CardSource, DataCard, ManualSource
from pipeline.corpora.download import download, get_partial_path
from pipeline.errors import UserError
from pipeline.runtime.files import compute_sha256

PrintLine = Callable[[str], None]


def fetch_corpus(card: DataCard, out: Path, downloads: Path, print_line: PrintLine = print) -> None:
    """Put the files of a corpus into `out` as its profile expects them, and keep its archives in `downloads`.

    Existing files are neither downloaded nor unpacked again. A folder that was not unpacked here is not changed. Raises
    UserError where a disk is too small, a download fails, a file is wrong or missing, or another run fetches into
    `downloads`.
    """
    print_line(f"{card.title}: {card.images:,} images, {card.captions:,} captions")
    print_line(f"licence: {card.licence}")
    print_line(f"cite: {card.citation}")
    for broken in card.broken:
        print_line(f"known to be broken: {broken.description} → {broken.replacement}")
    missing_archives = [archive for archive in card.archives if not _has_entries(out / archive.folder)]
    to_download = [archive for archive in missing_archives if archive.url]
    to_unpack = [archive for archive in missing_archives if not archive.url and (downloads / archive.file).exists()]
    if to_download or to_unpack:
        with _lock_folder(downloads):
            _print_plan(to_download, to_unpack, out, downloads, print_line)
            for archive in to_download + to_unpack:
                path = downloads / archive.file
                if archive.url:
                    download(archive.url, path, archive.bytes, archive.sha256)
                    source = {"url": archive.url, "sha256": archive.sha256}
                else:
                    source = {"sha256": compute_sha256(path)}
                    print_line(f"{archive.file}: SHA-256 {source['sha256']}; no digest is published to compare it with")
                folder, files, max_bytes = out / archive.folder, archive.files, archive.unpacked
                unpack(path, archive.members, folder, files=files, max_bytes=max_bytes, source=source)
    profile = _check_files(card, out, downloads, print_line)
    archive_paths = [downloads / archive.file for archive in card.archives if (downloads / archive.file).exists()]
    if archive_paths:
        size = sum(path.stat().st_size for path in archive_paths)
        print_line(f"{downloads}: the archives ({_format_size(size)}) are not needed any more and may be removed")
    print_line(f"complete: {out}; now: make repro PROFILE={profile}")


def summarise_card(card: DataCard) -> str:
    """Return three lines on a corpus: its size, its downloads and the files that the user must get, its licence."""
    size = sum(archive.bytes for archive in card.archives)
    manual: list[ArchiveSource | ManualSource] = [archive for archive in card.archives if not archive.url]
    manual += card.manual
    by_hand = [source.file for source in manual if not source.optional and not source.choice]
    choices: dict[str, list[str]] = {}
    for source in manual:
        if source.choice:
            choices.setdefault(source.choice, []).append(source.file)
    by_hand += [" or ".join(files) for files in choices.values()]
    return (
        f"{card.name}: {card.title}, {card.images:,} images, {card.captions:,} captions\n"
        f"  download: {_format_size(size) if size else 'nothing'}; by hand: {', '.join(by_hand) or 'nothing'}\n"
        f"  licence: {card.licence}"
    )


def _print_plan(
    to_download: list[ArchiveSource], to_unpack: list[ArchiveSource], out: Path, downloads: Path, print_line: PrintLine
) -> None:
    """Print the planned downloads and unpackings. Raises UserError where a disk is too small."""
    needs: list[tuple[Path, int]] = []  # folder, bytes
    for archive in to_download:
        path, part = downloads / archive.file, get_partial_path(downloads / archive.file)
        partial = part.stat().st_size if part.exists() else 0
        received = archive.bytes if path.exists() else partial
        needs.append((downloads, max(archive.bytes - received, 0)))
        received_text = f", of which {_format_size(received)} are here" if received else ""
        print_line(f"fetching {archive.url}: {_format_size(archive.bytes)}{received_text}")
    for archive in to_download + to_unpack:
        target, max_bytes = out / archive.folder, archive.unpacked
        needs.append((target, max_bytes))
        print_line(f"unpacking {archive.file} to {target}: {archive.files:,} files, up to {_format_size(max_bytes)}")
    disks = {_find_existing_ancestor(folder).stat().st_dev: _find_existing_ancestor(folder) for folder, _ in needs}
    for device, folder in disks.items():
        size = sum(size for path, size in needs if _find_existing_ancestor(path).stat().st_dev == device)
        free = shutil.disk_usage(folder).free
        print_line(f"disk of {folder}: {_format_size(size)} needed, {_format_size(free)} free")
        if size > free:
            raise UserError(
                f"{folder}: {_format_size(size)} are needed and {_format_size(free)} are free; make room, or name "
                "folders on other disks by --out and --downloads"
            )


def _check_files(card: DataCard, out: Path, downloads: Path, print_line: PrintLine) -> str:
    """Compare the files in `out` with the card; return the profile that reads them.

    Print the existing files, and the missing files with their sources. Raises UserError where a required file is
    missing, or a folder has changed or has too few files.
    """
    missing: list[tuple[CardSource, Path]] = []
    complete: list[CardSource] = []
    for archive in card.archives:
        folder = out / archive.folder
        if not _has_entries(folder):
            print_line(f"{'optional' if archive.optional else 'missing'}: {folder}")
            path = downloads / archive.file
            print_line(f"  put {archive.file} at {path}, or its files into {folder}, and run this again")
            print_line(f"  {archive.instructions}")
            missing.append((archive, folder))
            continue
        (files, size), marker = count_files(folder), read_marker(folder)
        if marker is not None and (files, size) != (marker["files"], marker["bytes"]):
            raise UserError(
                f"{folder}: {files:,} files of {size:,} bytes are there, and {marker['files']:,} of "
                f"{marker['bytes']:,} were unpacked; remove the folder and run this again"
            )
        if files < archive.min_files:
            problem = f"{files:,} files are there, and {archive.min_files:,} are needed"
            raise UserError(f"{folder}: {problem}; complete it, or move it away and run this again")
        print_line(f"found: {folder}, {files:,} files" + ("" if marker else ", not unpacked by this command"))
        complete.append(archive)
    for entry in card.manual:
        path = out / entry.file
        if path.is_file():
            print_line(f"found: {path}; no digest is published, so the file is not checked here")
            complete.append(entry)
        else:
            print_line(f"{'optional' if entry.optional else 'missing'}: {path}")
            print_line(f"  {entry.instructions}")
            missing.append((entry, path))
    profiles = {source.choice: source.profile for source in complete if source.choice}
    required = [(source, path) for source, path in missing if not source.optional and source.choice not in profiles]
    if required:
        choices = {source.choice for source, _ in required if source.choice}
        hint = (
            f" ({' or '.join(str(path) for source, path in required if source.choice)}: one is enough)"
            if choices
            else ""
        )
        paths = ", ".join(str(path) for _, path in required)
        raise UserError(f"{card.name}: still missing: {paths}{hint}; get them from the sources listed above")
    return next(filter(None, profiles.values()), card.name)


def _has_entries(folder: Path) -> bool:
    return folder.is_dir() and any(os.scandir(folder))


def _find_existing_ancestor(path: Path) -> Path:
    path = path.resolve()
    while not path.exists():
        path = path.parent
    return path


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock `folder`, since two runs would write the same partial downloads. Raises UserError where it is locked."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another run is fetching into it; run this again when it has ended") from None
        yield


def _format_size(size: int) -> str:
    """Return a size with its unit, such as 13.5 GB."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
