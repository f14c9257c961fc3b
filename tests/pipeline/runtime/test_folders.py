import os
import sys
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.runtime import folders
from pipeline.runtime.folders import atomic_folder


def write_folder(out: Path, text: str) -> None:
    with atomic_folder(out) as new:
        (new / "a").write_text(text)
        assert not (out / "a").exists() or (out / "a").read_text() != text
        if text == ".":
            (new / text).write_text("an error")


@pytest.mark.parametrize("exchange", [True, False], ids=["in one step", "where the system cannot"])
def test_a_complete_folder_replaces_an_older_one(tmp_path, monkeypatch, exchange):
    targets, rename = [], os.rename
    monkeypatch.setattr(os, "rename", lambda source, target: targets.append(target) or rename(source, target))
    if not exchange:
        monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    out = tmp_path / "out"
    write_folder(out, "1")
    write_folder(out, "2")
    if sys.platform == "linux":
        assert targets.count(out) == (1 if exchange else 2)  # an exchange is no rename
    with pytest.raises(IsADirectoryError):
        write_folder(out, ".")
    assert (out / "a").read_text() == "2"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_older_folder_is_kept_after_an_error_and_a_kill_between_the_renames(tmp_path, monkeypatch):
    """Some systems cannot exchange two folders in one step."""
    monkeypatch.setattr(folders, "_exchange", lambda one, other: False)
    out, rename = tmp_path / "out", os.rename
    write_folder(out, "1")

    def fail(source: Path, target: Path) -> None:
        if target == out and "-" not in Path(source).name:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="Input/output error"):
        write_folder(out, "2")
    assert (out / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    monkeypatch.setattr(os, "rename", rename)
    out.rename(tmp_path / ".out.12345678-.part")  # the state after a kill between the renames
    with pytest.raises(IsADirectoryError):
        write_folder(out, ".")
    assert (out / "a").read_text() == "1"


def test_abandoned_folders_are_removed_and_locked_ones_stay(tmp_path):
    (tmp_path / ".out.12345678.part/x").mkdir(parents=True)
    (tmp_path / ".other.12345678.part").mkdir()
    (tmp_path / ".out.b.12345678.part").mkdir()  # this one belongs to a folder out.b
    with atomic_folder(tmp_path / "out") as held:
        write_folder(tmp_path / "out", "1")
        assert held.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.12345678.part", ".out.b.12345678.part", "out"]


def test_a_folder_in_use_is_refused(tmp_path, monkeypatch):
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path / "mount")
    for folder in (Path(), tmp_path, Path(os.sep), tmp_path / "mount"):
        with pytest.raises(UserError, match="cannot be replaced while it is in use; give the path of a new folder"):
            write_folder(folder, "1")


def test_a_file_is_refused_and_stays(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UserError, match="out: expected a folder, found a file; give the path of another folder"):
        write_folder(tmp_path / "out", "1")
    assert (tmp_path / "out").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
