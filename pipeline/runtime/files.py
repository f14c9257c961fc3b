"""Files that are complete or absent: written under another name, flushed to disk, then renamed; digests of files."""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LARGE = 2**22  # smallest size in bytes of a file whose digest is cached
STALE = 600.0  # seconds after which a half-written file counts as abandoned
DIGEST_CACHE = Path("data/checkpoints/digests")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; its file is renamed to `path` if the block ends without an error.

    A system error that names no file, or the temporary file, is raised with `path` as its file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield temporary
        rename(temporary, path)
    except OSError as error:
        if error.errno is None or str(error.filename) not in ("None", str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def rename(temporary: Path, path: Path) -> None:
    """Rename a complete file to `path` after its bytes are on disk."""
    _sync(temporary)
    os.replace(temporary, path)
    _sync(path.parent)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` so that a reader, also after a crash, gets the complete old or the complete new file."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def write_checked(path: Path, content: bytes) -> None:
    """Write `content` after a line with its SHA-256, for `read_checked`."""
    write_atomically(path, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


def read_checked(path: Path) -> bytes:
    """Return the content that `write_checked` wrote. Raises ValueError where the bytes have changed."""
    digest, _, content = path.read_bytes().partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != digest:
        raise ValueError(f"{path}: its bytes have changed")
    return content


def allocate(path: Path, size: int) -> None:
    """Make a file of `size` zeros with its disk space reserved, where the system has posix_fallocate.

    Raises OSError where the disk is too small. A full disk would otherwise end a process that writes to a memory map
    of the file.
    """
    with open(path, "wb") as file:
        if hasattr(os, "posix_fallocate") and size:
            os.posix_fallocate(file.fileno(), 0, size)
        file.truncate(size)


def clear_parts(folder: Path) -> None:
    """Remove the half-written files in `folder` that no process has written to for STALE seconds."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):
            if part.is_file() and time.time() - part.stat().st_mtime > STALE:
                part.unlink()


def compute_sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def look_up_sha256(path: Path) -> str:
    """Return the SHA-256 of a file. A large file is read again only if its path or its metadata changed.

    The metadata are size, modification time and inode.
    """
    status = path.stat()
    if status.st_size < LARGE:
        return compute_sha256(path)
    stamp = [str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ino]
    cached = DIGEST_CACHE / hashlib.sha256(json.dumps(stamp).encode()).hexdigest()
    with suppress(OSError, ValueError):  # the cached digest is missing, unreadable or damaged
        return read_checked(cached).decode()
    digest = compute_sha256(path)
    with suppress(OSError):
        write_checked(cached, digest.encode())
    return digest


def compute_digest(path: Path) -> str:
    """Return `look_up_sha256` of a file, or the SHA-256 of the names and contents of all files below a folder.

    Python's compiled files and half-written files are left out. Raises FileNotFoundError where no file remains.
    """
    if path.is_file():
        return look_up_sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not _is_excluded(file.relative_to(path)))
    if not files:
        raise FileNotFoundError(f"{path}: no such file, or an empty folder")
    lines = [f"{file.relative_to(path)} {look_up_sha256(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _is_excluded(file: Path) -> bool:
    return "__pycache__" in file.parts or any(part[0] == "." and part.endswith(".part") for part in file.parts)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
