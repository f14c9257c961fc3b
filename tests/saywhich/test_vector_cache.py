"""The cache of photos' and captions' vectors: a search with a damaged cache equals a search without one."""

import os
import random
import sqlite3
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from file_damage import DAMAGE_KINDS, damage_content
from full_disk import mount_small_disk

from saywhich import vector_cache
from saywhich.vector_cache import VectorCache, embed_with_cache

SIZE, MODEL = 20, "a" * 64


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch) -> Path:
    """Return the cache folder of one model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/saywhich/photos" / MODEL[:32]


@pytest.fixture
def photos(tmp_path) -> list[Path]:
    """Write sixty files in two folders; ten files have the content of others. Return the paths."""
    for number in range(60):
        path = tmp_path / "photos" / str(number % 2) / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number % 50))
    return sorted((tmp_path / "photos").rglob("*.jpg"))


def make_vector(content: str, model: str) -> np.ndarray:
    return np.random.default_rng([*content.encode(), *model.encode()]).normal(size=SIZE).astype(np.float32)


def search(photos: list[Path], model: str = MODEL) -> tuple[int, np.ndarray]:
    """Return the number of encoded photos, and the vectors of all photos."""

    def encode_photos(paths):
        for begin in range(0, len(paths), 16):
            part = paths[begin : begin + 16]
            contents = [Path(path).read_text() for path in part]
            yield part, contents, np.stack([make_vector(content, model) for content in contents])

    found = embed_with_cache(photos, model, SIZE, encode_photos)
    assert found.files == tuple(photos)
    assert found.contents == tuple(path.read_text() for path in photos)
    return found.encoded, found.vectors


def check(photos: list[Path], model: str = MODEL) -> int:
    """Compare the vectors of a search with the encoder's, and return the number of encoded photos."""
    encoded_count, found = search(photos, model)
    np.testing.assert_array_equal(found, np.stack([make_vector(path.read_text(), model) for path in photos]))
    return encoded_count


@pytest.mark.parametrize("damage", [*DAMAGE_KINDS, "zeroed", "removed"])
def test_a_damaged_cache_gives_equal_results_and_is_written_again(photos, cache_folder, damage):
    assert check(photos) == 60
    assert check(photos) == 0
    assert check(photos, "b" * 64) == 60
    other = {path.name: path.read_bytes() for path in cache_folder.with_name("b" * 32).iterdir()}
    rng = random.Random(damage)
    for _ in range(4):
        for path in sorted(cache_folder.iterdir()):
            whole = path.read_bytes()
            begin = 1024 * rng.randrange(len(whole) // 1024 + 1)
            zeroed = whole[:begin] + bytes(len(whole[begin : begin + 4096])) + whole[begin + 4096 :]
            if damage == "removed":
                path.unlink()
            else:
                path.write_bytes(
                    zeroed if damage == "zeroed" else damage_content(damage, whole, [other[path.name]], rng)
                )
            check(photos)
            check(photos)
            assert check(photos) == 0, f"expected {path.name} to be rebuilt after the damage '{damage}'"


@pytest.mark.parametrize("columns", ["path BLOB", "path BLOB, digest BLOB", "path, size, time, inode, content, vector"])
def test_a_database_of_other_columns_is_rebuilt(photos, cache_folder, columns, capsys):
    assert check(photos) == 60
    with sqlite3.connect(cache_folder / "vectors.sqlite") as connection:
        path, more = os.fsencode(photos[0]), columns.count(",")
        connection.execute("DROP TABLE photos")
        connection.execute(f"CREATE TABLE photos ({columns})")
        connection.execute(f"INSERT INTO photos VALUES (?{', 0' * more})", [path])
    connection.close()
    assert check(photos) == 60
    assert "is damaged (no such column" in capsys.readouterr().err
    assert check(photos) == 0


def test_a_locked_full_or_shared_cache_is_reported_in_one_line(photos, cache_folder, monkeypatch, capsys):
    def read_lines() -> list[str]:
        return [line for line in capsys.readouterr().err.splitlines() if "photos encoded:" not in line]

    assert check(photos[:30]) == 30
    assert read_lines() == []
    monkeypatch.setattr(vector_cache, "SECONDS", 0.1)
    with sqlite3.connect(cache_folder / "vectors.sqlite", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert check(photos) == 60
    other.close()
    (line,) = read_lines()
    assert "(database is locked)" in line
    monkeypatch.setattr(vector_cache, "MAX_CACHE_BYTES", 6 * 4096)
    monkeypatch.setattr(vector_cache, "_make_room", lambda own: None)
    assert check(photos) == 30
    (line,) = read_lines()
    assert "(database or disk is full)" in line
    cache_folder.chmod(0o770)
    assert check(photos) == 60
    (line,) = read_lines()
    assert "others can write" in line


def test_a_cache_on_a_full_or_read_only_disk_is_skipped(photos, tmp_path, cache_folder, capsys):
    try:
        with mount_small_disk(tmp_path / "cache"):
            assert check(photos[:30]) == 30
            disk = os.statvfs(tmp_path / "cache")
            used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
            for options in ("ro", f"rw,size={used}"):
                subprocess.run(["mount", "-o", f"remount,{options}", tmp_path / "cache"], check=True)
                assert check(photos) in (30, 60)
                printed = [line for line in capsys.readouterr().err.splitlines() if str(tmp_path / "cache") in line]
                assert len(printed) == 1
                assert "photos and captions are encoded without it" in printed[0]
    except PermissionError as error:
        pytest.skip(str(error))


def test_the_cache_is_private_and_bounded(photos, cache_folder, monkeypatch):
    for number in range(4):
        check(photos, str(number) * 64)
        os.utime(cache_folder.with_name(str(number) * 32), (number, number))
    folders = [cache_folder, cache_folder.parent, cache_folder.parents[1]]
    check(photos)
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    size = (cache_folder / "vectors.sqlite").stat().st_size
    monkeypatch.setattr(vector_cache, "MAX_CACHE_BYTES", 3 * size)
    check(photos)
    assert sorted(path.name[0] for path in cache_folder.parent.iterdir()) == ["3", "a"]
    monkeypatch.setattr(vector_cache, "MAX_CACHE_BYTES", size // 2)
    check(photos)
    assert sum(path.stat().st_size for path in cache_folder.parent.rglob("*.sqlite")) <= size // 2


def test_file_names_that_are_not_unicode_are_cached_and_removed_files_are_counted(tmp_path, photos):
    strange = Path(os.fsdecode(os.fsencode(tmp_path / "photos") + b"/\xff.jpg"))
    strange.write_text("strange")
    check([*photos, strange])
    assert check([*photos, strange]) == 0
    photos[0].unlink()
    found = embed_with_cache(photos[1:], MODEL, SIZE, lambda paths: iter(()))
    assert (found.encoded, found.missing) == (0, 1)


def test_a_modification_time_or_an_inode_of_more_than_63_bits_is_cached(photos, monkeypatch, capsys):
    os.utime(photos[0], (10**10, 10**10))  # the year 2286
    original = os.stat

    def report_large_inode(path, **options):
        found = original(path, **options)
        if str(path) != str(photos[1]):
            return found
        return SimpleNamespace(st_size=found.st_size, st_mtime_ns=found.st_mtime_ns, st_ino=2**64 - 5)

    monkeypatch.setattr(vector_cache.os, "stat", report_large_inode)
    assert check(photos) == 60
    assert check(photos) == 0
    os.utime(photos[0], (10**10 + 1, 10**10 + 1))
    assert check(photos) == 1
    assert "cannot be used" not in capsys.readouterr().err


def test_a_file_beside_the_caches_and_one_that_vanishes_disable_no_cache(photos, cache_folder, monkeypatch, capsys):
    assert check(photos) == 60
    (cache_folder.parent / ".DS_Store").touch()
    (cache_folder / "vectors.sqlite-journal").symlink_to("nowhere")  # its size cannot be read
    vector_cache._make_room(cache_folder)
    (cache_folder / "vectors.sqlite-journal").unlink()
    assert check(photos) == 0
    assert "cannot be used" not in capsys.readouterr().err


def test_a_cache_that_is_locked_when_captions_are_confirmed_is_skipped(cache_folder, monkeypatch, capsys):
    monkeypatch.setattr(vector_cache, "SECONDS", 0.1)
    store = VectorCache(MODEL, SIZE)
    store.add_captions(["a dog"], np.ones((1, SIZE), np.float32))
    with sqlite3.connect(cache_folder / "vectors.sqlite", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        store.confirm_captions(["a dog"])
    other.close()
    store.close()
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "(database is locked)" in printed


def test_removed_photos_are_deleted_from_the_cache_in_one_transaction(tmp_path):
    """Each transaction waits for the disk: 2,000 photos in as many transactions took two minutes."""
    store = VectorCache(MODEL, SIZE)
    names = [str(tmp_path / f"{number}.jpg") for number in range(20)]
    store.add_photos({name: ((1, 2, 3), ("content", np.ones(SIZE, np.float32))) for name in names})
    statements = []
    store._connection.set_trace_callback(statements.append)
    store.remove_photos(names[:15])
    assert [each for each in statements if not each.startswith("DELETE")] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert sorted(store.read_photos(names)) == sorted(names[15:])
    store.close()
