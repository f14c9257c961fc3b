"""The user's cache folder is private."""

import os
import stat

import pytest

from pipeline.runtime import cache


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "saywhich"


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_a_new_folder_is_private_to_the_user(cache_folder, umask):
    previous = os.umask(umask)
    try:
        path = cache.make_private_folder("photos/1")
    finally:
        os.umask(previous)
    assert path == cache_folder / "photos/1"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, cache_folder)} == {0o700}


def test_a_readable_folder_is_made_private_and_a_writable_one_is_refused(cache_folder):
    (cache_folder / "photos").mkdir(parents=True)
    cache_folder.chmod(0o755)
    assert stat.S_IMODE(cache.make_private_folder("photos").parent.stat().st_mode) == 0o700
    for folder in (cache_folder, cache_folder / "photos"):
        for mode in (0o770, 0o702):
            folder.chmod(mode)
            with pytest.raises(PermissionError, match=f"others can write to {folder}; remove it, or chmod 700 it"):
                cache.make_private_folder("photos")
        folder.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(cache_folder, 1, -1)
        with pytest.raises(PermissionError, match=f"{cache_folder} belongs to another user"):
            cache.make_private_folder("photos")


def test_a_folder_that_others_can_replace_is_refused(cache_folder, tmp_path):
    """Users who can write to the parent folder can replace the cache folder by one with their own machine code."""
    cache.make_private_folder("loops")
    tmp_path.chmod(0o777)
    with pytest.raises(
        PermissionError, match=f"others can write to {tmp_path} and replace {cache_folder}; chmod o-w {tmp_path}"
    ):
        cache.make_private_folder("loops")
    tmp_path.chmod(0o1777)
    assert cache.make_private_folder("loops") == cache_folder / "loops"


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    def raise_error():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", raise_error)
    with pytest.raises(FileNotFoundError, match="set XDG_CACHE_HOME or HOME"):
        cache.make_private_folder("photos")
