"""The listener's vectors of photos, kept in the user's cache folder, so that each photo is looked at once.

A vector is kept by what the network was shown and by the model; a file is known again by its path, size, time and
inode. Nothing is written beside the photos.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from pipeline.runtime import cache

TABLES = """
CREATE TABLE IF NOT EXISTS vectors (content TEXT PRIMARY KEY, row INTEGER UNIQUE);
CREATE TABLE IF NOT EXISTS photos
    (path TEXT PRIMARY KEY, size INTEGER, time INTEGER, inode INTEGER, content TEXT) WITHOUT ROWID;
"""
KNOWN = """
SELECT path, photos.size, time, inode, content, row FROM photos JOIN vectors USING (content)
WHERE path > ? || '/' AND path < ? || '0' AND row < ?
"""  # '0' comes after '/'

Stamp = tuple[int, int, int]  # size, time and inode
Looked = tuple[Sequence[str], Sequence[str], np.ndarray]  # n paths, names of what was seen, vectors (n, H) float32
Look = Callable[[Sequence[str]], Iterator[Looked]]  # in batches; photos that cannot be read are left out


@dataclass(frozen=True)
class Gallery:
    """M photos and a listener's vectors of them."""

    files: tuple[Path, ...]
    vectors: np.ndarray  # (M, H) float32 of length 1
    contents: tuple[str, ...]  # photos of equal ones are the same to the network
    looked_at: int  # how many were new or changed
    gone: int  # how many that were known are there no more


def gallery(files: Sequence[Path], digest: str, size: int, look: Look) -> Gallery:
    """The vectors of `files`, those that can be read: from the cache, or by `look`.

    `digest` names the model, `size` is H. A cache that cannot be written is done without.
    """
    with _opened(cache.folder() / "photos" / digest[:32]) as (connection, file):
        paths = [os.path.abspath(path) for path in files]
        stamps = [_stamp(path) for path in paths]
        before = _known(connection, paths, file, size)
        rows = {
            path: before[path][1:] for path, stamp in zip(paths, stamps, strict=True) if _fresh(before, path, stamp)
        }
        stale = {path: stamp for path, stamp in zip(paths, stamps, strict=True) if path not in rows}
        with tqdm(total=len(stale), desc="photos looked at", unit="", disable=None) as bar:
            for seen, contents, vectors in look(list(stale)) if stale else ():
                found = _add(connection, file, contents, vectors)
                rows |= {path: (name, found[name]) for path, name in zip(seen, contents, strict=True)}
                written = [(path, *stale[path], name) for path, name in zip(seen, contents, strict=True)]
                connection.executemany("INSERT OR REPLACE INTO photos VALUES (?, ?, ?, ?, ?)", written)
                connection.execute("COMMIT")
                bar.update(len(seen))
        gone = [path for path in before.keys() - set(paths) if not os.path.exists(path)]
        connection.executemany("DELETE FROM photos WHERE path = ?", [(path,) for path in gone])
        kept = [i for i, path in enumerate(paths) if path in rows]
        places, contents = [rows[paths[i]][1] for i in kept], tuple(rows[paths[i]][0] for i in kept)
        vectors = _mapped(file, size)[places] if kept else np.zeros((0, size), np.float32)
        return Gallery(tuple(files[i] for i in kept), vectors, contents, len(stale), len(gone))


def _fresh(before: dict[str, tuple[Stamp, str, int]], path: str, stamp: Stamp) -> bool:
    return path in before and before[path][0] == stamp


def _stamp(path: str) -> Stamp:
    """Of a file that is gone by now: zeros, and who looks at it says so."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_size, status.st_mtime_ns, status.st_ino


def _known(
    connection: sqlite3.Connection, paths: Iterable[str], file: Path, size: int
) -> dict[str, tuple[Stamp, str, int]]:
    """What is known of photos in the folders of `paths`, and below them: stamp, content and row, by path."""
    rows = file.stat().st_size // (4 * size) if file.exists() else 0
    found = {}
    for folder in {os.path.dirname(path) for path in paths}:
        for path, *stamp, content, row in connection.execute(KNOWN, (folder, folder, rows)):
            found[path] = ((stamp[0], stamp[1], stamp[2]), content, row)
    return found


def _add(connection: sqlite3.Connection, file: Path, contents: Sequence[str], vectors: np.ndarray) -> dict[str, int]:
    """Append those vectors that are new, in a transaction that the caller ends; the row of each content."""
    connection.execute("BEGIN IMMEDIATE")
    (following,) = connection.execute("SELECT COALESCE(MAX(row) + 1, 0) FROM vectors").fetchone()
    size = vectors.shape[1]
    last = file.stat().st_size // (4 * size) if file.exists() else 0
    following = min(following, last)  # a file that was cut off is filled again
    connection.execute("DELETE FROM vectors WHERE row >= ?", (following,))
    rows: dict[str, int] = {}
    with open(file, "r+b" if file.exists() else "w+b") as target:
        for content, vector in zip(contents, vectors, strict=True):
            if content in rows:
                continue
            known = connection.execute("SELECT row FROM vectors WHERE content = ?", (content,)).fetchone()
            rows[content] = known[0] if known else following
            if known is None:
                target.seek(4 * size * following)
                target.write(np.ascontiguousarray(vector, "<f4").tobytes())
                connection.execute("INSERT INTO vectors VALUES (?, ?)", (content, following))
                following += 1
        target.flush()
        os.fsync(target.fileno())
    return rows


def _mapped(file: Path, size: int) -> np.ndarray:
    """(N, H): all vectors, of which only those are read that are asked for."""
    rows = file.stat().st_size // (4 * size)
    return np.memmap(file, "<f4", "r", shape=(rows, size))


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """The cache's tables and its file of vectors; in a temporary folder where it cannot be written or is damaged."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        connection = _connected(folder)
    except (OSError, sqlite3.DatabaseError):
        with tempfile.TemporaryDirectory(prefix="saywhich-") as temporary, _opened(Path(temporary)) as opened:
            yield opened
        return
    with closing(connection):
        yield connection, folder / "vectors"


def _connected(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "photos.sqlite", timeout=60, isolation_level=None)
    connection.executescript(TABLES)
    return connection
