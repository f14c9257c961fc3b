"""Embeddings of photos and captions, cached in the user's cache folder, so that each is encoded once by a model.

A photo is identified by its path, size, modification time and inode. A caption is identified by the SHA-256 of its
text. Each row has a digest that depends on the model. Damaged rows are computed again, and an unusable cache is
skipped. Nothing is written beside the photos.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from tqdm import tqdm

from pipeline.runtime import cache

FOLDER, FILE = "photos", "vectors.sqlite"
MAX_CACHE_BYTES = 4 * 2**30  # bytes of the caches of all models together
PAGE = 4096  # bytes of a page of SQLite
TABLES = """
PRAGMA max_page_count = {};
CREATE TABLE IF NOT EXISTS photos
    (path BLOB PRIMARY KEY, size INTEGER, time INTEGER, inode INTEGER, content TEXT, vector BLOB, digest BLOB);
CREATE TABLE IF NOT EXISTS captions (caption BLOB PRIMARY KEY, vector BLOB, digest BLOB);
"""
# columns are selected by name, so SQLite raises an error for a database of another version, which is then rebuilt
PHOTOS_BELOW = "SELECT path, size, time, inode, content, vector, digest FROM photos WHERE path > ? AND path < ?"
UNUSABLE = {  # errors of the environment, not of a damaged file: the file is kept
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
SECONDS = 5.0  # longest wait for another process that writes
ROWS_AT_ONCE = 500  # captions in one query; SQLite takes 999 or more

Stamp = tuple[int, int, int]  # size, modification time in ns, and inode, each as SQLite's signed 64 bits
CachedPhoto = tuple[str, np.ndarray]  # digest of the prepared image, and embedding (H,)
# N paths, digests of the prepared images, embeddings (N, H) float32
EmbeddedPhotos = tuple[Sequence[str], Sequence[str], np.ndarray]
EmbedPhotos = Callable[[Sequence[str]], Iterator[EmbeddedPhotos]]  # in batches; unreadable photos are left out
Result = TypeVar("Result")


@dataclass(frozen=True)
class PhotoGallery:
    """M photos and their embeddings by a listener or another encoder."""

    files: tuple[Path, ...]
    vectors: np.ndarray  # (M, H) float32; of length 1 by a listener
    contents: tuple[str, ...]  # digests of the prepared images; equal digests mean equal inputs
    encoded: int  # number of new or changed photos, including unreadable photos
    missing: int  # number of cached photos that no longer exist


def embed_with_cache(files: Sequence[Path], digest: str, size: int, embed: EmbedPhotos) -> PhotoGallery:
    """Return the embeddings of the readable `files`, from the cache or by `embed`.

    `digest` identifies the model, `size` is H. An unusable cache is skipped and reported in one line.
    """
    store = VectorCache(digest, size)
    paths = [os.path.abspath(path) for path in files]
    stamps = {path: _read_stamp(path) for path in paths}
    cached = store.read_photos(paths)
    photo_by_path = {
        path: cached[path][1] for path, stamp in stamps.items() if path in cached and cached[path][0] == stamp
    }
    vector_by_content = dict(photo_by_path.values())
    stale = {path: stamp for path, stamp in stamps.items() if path not in photo_by_path}
    with tqdm(total=len(stale), desc="photos encoded", unit="", disable=None) as bar:
        for readable, contents, vectors in embed(list(stale)) if stale else ():
            new_photos = {
                path: (content, vector_by_content.setdefault(content, np.ascontiguousarray(vector, "<f4")))
                for path, content, vector in zip(readable, contents, vectors, strict=True)
            }
            store.add_photos({path: (stale[path], photo) for path, photo in new_photos.items()})
            photo_by_path |= new_photos
            bar.update(len(readable))
    missing_paths = [path for path in cached.keys() - stamps.keys() if not os.path.exists(path)]
    store.remove_photos(missing_paths)
    if stale:
        store.confirm_photos({path: stamps[path] for path in photo_by_path})
    store.close()
    readable_rows = [i for i, path in enumerate(paths) if path in photo_by_path]
    photos = [photo_by_path[paths[i]] for i in readable_rows]
    vectors = np.array([vector for _, vector in photos], np.float32).reshape(len(photos), size)
    digests = tuple(content for content, _ in photos)
    return PhotoGallery(tuple(files[i] for i in readable_rows), vectors, digests, len(stale), len(missing_paths))


class VectorCache:
    """Embeddings (H,) of photos and captions by one model, in a SQLite database that is rebuilt where it is damaged."""

    def __init__(self, model: str, size: int) -> None:
        self._key = hashlib.blake2b(f"{model} {size}".encode(), digest_size=32).digest()
        self._connection: sqlite3.Connection | None = None
        self._file: Path | None = None  # None: no cache is used
        try:
            self._file = cache.make_private_folder(f"{FOLDER}/{model[:32]}") / FILE
            _make_room(self._file.parent)
        except OSError as error:
            self._disable(error)

    def read_photos(self, paths: Iterable[str]) -> dict[str, tuple[Stamp, CachedPhoto]]:
        """Return the stamp, the digest and the embedding of each cached photo in or below the folders of `paths`."""
        return self._try(lambda connection: self._read_photos(connection, paths)) or {}

    def add_photos(self, photos: dict[str, tuple[Stamp, CachedPhoto]]) -> None:
        """Store the stamp, the digest and the embedding of each photo."""
        rows = [
            [os.fsencode(path), *stamp, content, vector.tobytes()]
            for path, (stamp, (content, vector)) in photos.items()
        ]
        self._insert("INSERT OR REPLACE INTO photos VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def read_captions(self, captions: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the embedding of each caption that the cache holds."""
        names = {_compute_caption_digest(caption): caption for caption in captions}
        return self._try(lambda connection: self._read_captions(connection, names)) or {}

    def add_captions(self, captions: Sequence[str], vectors: np.ndarray) -> None:
        """Store the embeddings (N, H) float32 of N captions."""
        rows = [
            [_compute_caption_digest(caption), np.ascontiguousarray(vector, "<f4").tobytes()]
            for caption, vector in zip(captions, vectors, strict=True)
        ]
        self._insert("INSERT OR REPLACE INTO captions VALUES (?, ?, ?)", rows)

    def confirm_captions(self, captions: Sequence[str]) -> None:
        """Rebuild a database that does not return embeddings of these captions: it loses rows."""
        cached = self.read_captions(captions)
        if self._file and len(cached) < len(set(captions)):
            self._rebuild("it loses rows")

    def remove_photos(self, paths: Sequence[str]) -> None:
        """Remove photos that no longer exist."""
        if paths:
            self._write("DELETE FROM photos WHERE path = ?", [[os.fsencode(path)] for path in paths])

    def confirm_photos(self, stamps: dict[str, Stamp]) -> None:
        """Rebuild a database that does not return photos with these stamps: it loses rows."""
        cached = self.read_photos(stamps)
        if self._file and any(path not in cached or cached[path][0] != stamp for path, stamp in stamps.items()):
            self._rebuild("it loses rows")

    def close(self) -> None:
        """Close the database; uncommitted changes are lost."""
        if self._connection:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _read_photos(
        self, connection: sqlite3.Connection, paths: Iterable[str]
    ) -> dict[str, tuple[Stamp, CachedPhoto]]:
        photo_by_path: dict[str, tuple[Stamp, CachedPhoto]] = {}
        for folder in _drop_nested_folders(
            os.fsencode(os.path.join(name, "")) for name in set(map(os.path.dirname, paths))
        ):
            bounds = (folder, folder[:-1] + b"0")  # '0' comes after '/'
            for *row, digest in connection.execute(PHOTOS_BELOW, bounds):
                if digest == self._compute_digest(row):
                    path, size, time, inode, content, vector = row
                    photo_by_path[os.fsdecode(path)] = (size, time, inode), (content, np.frombuffer(vector, "<f4"))
        return photo_by_path

    def _read_captions(self, connection: sqlite3.Connection, names: dict[bytes, str]) -> dict[str, np.ndarray]:
        vector_by_caption: dict[str, np.ndarray] = {}
        keys = list(names)
        for first in range(0, len(keys), ROWS_AT_ONCE):
            part = keys[first : first + ROWS_AT_ONCE]
            query = f"SELECT caption, vector, digest FROM captions WHERE caption IN ({', '.join('?' * len(part))})"
            for *row, digest in connection.execute(query, part):
                if digest == self._compute_digest(row):
                    vector_by_caption[names[row[0]]] = np.frombuffer(row[1], "<f4")
        return vector_by_caption

    def _insert(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows with their digests."""
        self._write(statement, [[*row, self._compute_digest(row)] for row in rows])

    def _write(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run `statement` on each of the rows in one transaction, which waits for the disk once."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, rows)
            connection.execute("COMMIT")

        self._try(write)

    def _compute_digest(self, row: Sequence[object]) -> bytes:
        """Return the digest of a row, keyed by the model."""
        *fields, vector = row
        digest = hashlib.blake2b(repr(fields).encode(), key=self._key, digest_size=16)
        digest.update(vector if isinstance(vector, bytes) else b"")
        return digest.digest()

    def _try(self, action: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Run `action` on the database, rebuilt once if it is damaged; return None where it cannot be used."""
        for is_last_attempt in (False, True):
            if self._file is None:
                break
            try:
                if self._connection is None:
                    self._connection = _connect(self._file)
                return action(self._connection)
            except (sqlite3.Error, OSError) as error:
                self.close()
                code = getattr(error, "sqlite_errorcode", None)
                if is_last_attempt or isinstance(error, OSError) or (code is not None and code & 0xFF in UNUSABLE):
                    self._disable(error)
                else:
                    self._rebuild(error)
        return None

    def _rebuild(self, cause: object) -> None:
        assert self._file is not None
        tqdm.write(f"{self._file}: is damaged ({cause}) and rebuilt", file=sys.stderr)
        self.close()
        try:
            for path in (self._file, self._file.with_name(f"{FILE}-journal")):
                path.unlink(missing_ok=True)
        except OSError as error:
            self._disable(error)

    def _disable(self, error: Exception) -> None:
        name = self._file or f"the cache of {FOLDER}"
        tqdm.write(f"{name}: cannot be used ({error}); photos and captions are encoded without it", file=sys.stderr)
        self._file = None


def _compute_caption_digest(caption: str) -> bytes:
    return hashlib.sha256(caption.encode("utf-8", "surrogatepass")).digest()


def _connect(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=SECONDS, isolation_level=None)
    try:
        connection.executescript(TABLES.format(MAX_CACHE_BYTES // PAGE))
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _make_room(own_folder: Path) -> None:
    """Remove the least recently used models' caches where all have more than 95 % of MAX_CACHE_BYTES bytes together.

    The cache in `own_folder` is emptied where it alone has more. Other processes remove files meanwhile, so a file that
    is listed may be missing.
    """
    with suppress(OSError):
        os.utime(own_folder)  # the folder's time records its last use
    folders = [folder for folder in own_folder.parent.iterdir() if folder.is_dir()]
    free = MAX_CACHE_BYTES
    for folder in sorted(folders, key=lambda folder: _read_stamp(str(folder))[1], reverse=True):
        with suppress(FileNotFoundError):
            free -= sum(_read_stamp(str(path))[0] for path in folder.iterdir())
        if free < MAX_CACHE_BYTES // 20:
            for path in folder.iterdir() if folder == own_folder else ():
                path.unlink(missing_ok=True)
            if folder != own_folder:
                shutil.rmtree(folder, ignore_errors=True)


def _drop_nested_folders(folders: Iterable[bytes]) -> list[bytes]:
    """Drop folders that lie below another folder; each ends with a slash."""
    outermost: list[bytes] = []
    for folder in sorted(folders):
        if not (outermost and folder.startswith(outermost[-1])):
            outermost.append(folder)
    return outermost


def _read_stamp(path: str) -> Stamp:
    """Return a file's stamp; zeros for a file that cannot be accessed, which `embed` reports."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    # times after the year 2262, and inodes of some network file systems, have more than 63 bits
    return status.st_size, _convert_to_signed(status.st_mtime_ns), _convert_to_signed(status.st_ino)


def _convert_to_signed(number: int) -> int:
    """Return the lowest 64 bits of a number as a signed integer."""
    return (number + 2**63) % 2**64 - 2**63
