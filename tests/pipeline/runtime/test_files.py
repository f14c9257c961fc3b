"""Files that are complete or absent, and digests without half-written files."""

import errno
import os
import time

import pytest

from pipeline.runtime.files import allocate, clear_parts, compute_digest, write_atomically


def test_partial_files_are_in_no_digest_and_old_ones_are_removed(tmp_path):
    (tmp_path / "a").write_text("a")
    expected = compute_digest(tmp_path)
    for name in (".a.12345678.part", ".b.12345678.part"):
        (tmp_path / name).write_text("half")
    assert compute_digest(tmp_path) == expected
    old = time.time() - 3600
    os.utime(tmp_path / ".a.12345678.part", (old, old))
    clear_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.12345678.part", "a"]


def test_a_folder_with_a_file_name_of_any_bytes_has_a_digest(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"\xff.jpg")
    try:
        open(path, "wb").close()
    except OSError as error:
        pytest.skip(f"this file system allows only Unicode names: {error}")
    assert len(compute_digest(tmp_path)) == 64


def test_disk_space_is_reserved_at_once_or_refused(tmp_path, monkeypatch):
    allocate(tmp_path / "x", 2**20)
    status = (tmp_path / "x").stat()
    assert (status.st_size, status.st_blocks * 512 >= 2**20) == (2**20, True)

    def raise_disk_full(file, start, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", raise_disk_full)
    with pytest.raises(OSError, match="No space left"):
        allocate(tmp_path / "y", 2**20)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_reported_with_the_files_name(tmp_path, monkeypatch, call):
    def raise_disk_full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", *arguments[:1] if call == "replace" else ())

    path = tmp_path / "metrics.json"
    monkeypatch.setattr(os, call, raise_disk_full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/metrics\.json'$"):
        write_atomically(path, "{}")
    assert list(tmp_path.iterdir()) == []
