"""Unpacking of untrusted archives: nothing outside the folder, no links, and a limit on the bytes written."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import IO, cast

from tqdm import tqdm

from pipeline.errors import UserError
from pipeline.runtime.files import write_atomically

MARKER = ".unpacked.json"  # file in an unpacked folder: names the archive, and counts files and bytes
MAX_MEMBERS = 1_000_000  # largest number of members of an archive
CHUNK = 1 << 20  # bytes that are read at once

# Exceptions of the standard library's readers for damaged archives and for files that are no archives.
BROKEN = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error)
UNREADABLE = (*BROKEN, EOFError, LookupError, NotImplementedError, RuntimeError, ValueError)


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """An entry of an archive, as the archive describes it."""

    name: str
    size: int  # bytes
    kind: str  # file, folder, or a description of a refused kind
    open: Callable[[], IO[bytes]]


def unpack(
    archive: Path, members: str, target: Path, *, files: int, max_bytes: int, source: Mapping[str, str] | None = None
) -> None:
    """Unpack the files of `archive` that `members` names (folder/pattern) into `target`, all of them or none.

    All entries are checked, also those that are not unpacked. Raises UserError for an entry that leads outside, is a
    link or a device, is encrypted, or occurs twice. Raises UserError, too, where the files exceed `max_bytes` or their
    number is not `files`. Raises UserError for a broken archive, and where `target` is not empty or cannot be written.
    At most MAX_MEMBERS entries are allowed. The archive's name determines its format: zip, tar or tar.gz. `source` is
    written into the folder's marker.
    """
    target = target.resolve()
    if not archive.exists():
        raise UserError(f"{archive}: the archive is missing; download it again")
    part = target.with_name(f".{target.name}.part")
    if part.exists():
        shutil.rmtree(part)  # left by a killed run
    try:
        part.mkdir(parents=True)
        count, written = _write(archive, members, part, files, max_bytes)
        if count != files:
            raise UserError(
                f"{archive}: {count:,} files match {members}, and {files:,} are expected; get the right archive"
            )
        marker = {"archive": archive.name, "members": members, **(source or {}), "files": count, "bytes": written}
        write_atomically(part / MARKER, json.dumps(marker, indent=1) + "\n")
        os.sync()  # the files' bytes must be on disk before the folder gets its name
        os.replace(part, target)
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(
            f"{archive}: cannot be read as an archive ({str(error) or type(error).__name__}); download it again"
        ) from None
    except OSError as error:
        raise UserError(
            f"{archive}: cannot be unpacked into {target} ({error.strerror or error}); make the folder empty and "
            "writable, with enough space"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def count_files(folder: Path) -> tuple[int, int]:
    """Return the number of files in a folder and their bytes, without the marker."""
    sizes = [entry.stat().st_size for entry in os.scandir(folder) if entry.name != MARKER and entry.is_file()]
    return len(sizes), sum(sizes)


def read_marker(folder: Path) -> dict | None:
    """Return the marker that `unpack` wrote into a folder; None where the folder was not unpacked here.

    Raises UserError for a damaged marker.
    """
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        if not all(isinstance(marker[key], int) for key in ("files", "bytes")):
            raise ValueError
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError):
        raise UserError(f"{folder / MARKER}: damaged; remove the folder {folder} and run this again") from None
    return marker


def _write(archive: Path, members: str, target: Path, files: int, max_bytes: int) -> tuple[int, int]:
    """Check all entries and write the matching files; return the numbers of files and of bytes written.

    Raises UserError for an entry or a size that `unpack` refuses.
    """
    folder, _, pattern = members.rpartition("/")
    names: set[str] = set()
    count = written = 0

    def refuse(problem: str) -> UserError:
        return UserError(f"{archive}: {problem}; none of its files is used: get another copy")

    with _open_members(archive) as entries, tqdm(total=files, desc=archive.name, unit="", disable=None) as bar:
        for number, member in enumerate(entries, 1):
            if number > MAX_MEMBERS:
                raise refuse(f"it has more than {MAX_MEMBERS:,} members")
            if member.kind not in ("file", "folder"):
                raise refuse(f"{member.name!r} is {member.kind}")
            parts = _split_path(member.name)
            if parts is None or (member.kind == "file" and not parts):
                raise refuse(f"{member.name!r} leads outside the folder or is no name for a file")
            if member.kind == "folder":
                continue
            if (name := unicodedata.normalize("NFC", "/".join(parts)).casefold()) in names:
                raise refuse(f"{member.name!r} occurs twice")
            names.add(name)
            if "/".join(parts[:-1]) != folder or not fnmatchcase(parts[-1], pattern):
                continue
            if parts[-1] == MARKER:
                raise refuse(f"{member.name!r} is a reserved name")
            start = written
            with member.open() as source, open(target / parts[-1], "xb") as file:
                while chunk := source.read(CHUNK):
                    written += len(chunk)
                    if written > max_bytes:
                        raise refuse(f"it unpacks to more than {max_bytes:,} bytes")
                    file.write(chunk)
            if written - start != member.size:
                raise refuse(f"{member.name!r} has {written - start:,} bytes, and its header states {member.size:,}")
            count += 1
            bar.update()
    return count, written


def _split_path(name: str) -> list[str] | None:
    """Return the parts of a member's path; None if it is unprintable, or absolute or upward on any operating system."""
    if not name.isprintable() or "\\" in name or name[1:2] == ":":
        return None
    parts = [part for part in name.removesuffix("/").split("/") if part != "."]
    return None if any(part in ("", "..") for part in parts) else parts


@contextmanager
def _open_members(archive: Path) -> Iterator[Iterator[ArchiveMember]]:
    name = archive.name.lower()
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive) as zip_file:
            yield (_describe_zip_member(zip_file, info) for info in zip_file.infolist())
    elif name.endswith((".tar", ".tar.gz", ".tgz")):
        with open(archive, "rb") if name.endswith(".tar") else gzip.open(archive) as file:
            yield _read_tar_members(file)
    else:
        raise UserError(f"{archive}: expected a name that ends in .zip, .tar, .tar.gz or .tgz; rename the archive")


def _describe_zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> ArchiveMember:
    mode = stat.S_IFMT(info.external_attr >> 16)
    if stat.S_ISLNK(mode):
        kind = "a link"
    elif mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        kind = "no plain file"
    elif info.flag_bits & 0x1:
        kind = "encrypted"
    else:
        kind = "folder" if info.is_dir() else "file"
    return ArchiveMember(info.orig_filename, info.file_size, kind, partial(archive.open, info))


def _read_tar_members(file: IO[bytes] | gzip.GzipFile) -> Iterator[ArchiveMember]:
    bounded = _BoundedReader(file)
    with tarfile.open(fileobj=bounded, mode="r:") as archive:  # type: ignore[call-overload]
        while (info := archive.next()) is not None:
            archive.members.clear()  # tarfile would keep all members in memory
            if info.issym() or info.islnk():
                kind = "a link"
            elif info.isdir():
                kind = "folder"
            else:
                kind = "file" if info.isreg() and not info.issparse() else "no plain file"
            # extractfile returns None only for members that are no plain files
            yield ArchiveMember(info.name, info.size, kind, partial(cast(Callable, archive.extractfile), info))
    while bounded.read(CHUNK):  # read to the end, where gzip has its checksum
        pass


class _BoundedReader:
    """File that is read forwards only, in parts of at most CHUNK bytes, since a tar header may state any length."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile):
        self.file = file

    def read(self, size: int) -> bytes:
        if not 0 <= size <= CHUNK:
            raise tarfile.ReadError(f"a header of {size:,} bytes, more than {CHUNK:,}")
        return self.file.read(size)

    def seek(self, offset: int) -> int:
        if offset < self.file.tell() - 1:  # tarfile rereads the last byte before a header
            raise tarfile.ReadError("a header that leads backwards")
        return self.file.seek(offset)

    def tell(self) -> int:
        return self.file.tell()
