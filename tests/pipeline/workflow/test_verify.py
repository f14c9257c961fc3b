"""`make verify` names every changed file, by DVC's lock and cache and by the notes of cells."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from file_damage import DAMAGE_KINDS, damage_content
from preloaded_python import find_program

from pipeline.runtime.files import compute_sha256, write_checked
from pipeline.workflow import verify
from pipeline.workflow.reuse import write_note

WORKFLOW = """
stages:
  one:
    cmd: echo one > data/one.txt
    outs: [data/one.txt]
  many:
    cmd: mkdir -p data/many/sub && echo a > data/many/a && echo b > data/many/sub/b
    outs: [data/many]
"""


@pytest.fixture(scope="module")
def finished_repository(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (folder / "dvc.yaml").write_text(WORKFLOW)
    (folder / "data").mkdir()
    subprocess.run([find_program("dvc"), "repro", "-q"], cwd=folder, check=True)
    cell = folder / "data/cells/luo/seed=1"
    cell.mkdir(parents=True)
    (cell / "metrics.json").write_text("{}")
    notes = folder / verify.NOTES
    notes.mkdir(parents=True)
    write_note(notes / "new.json", cell.relative_to(folder), {"metrics.json": compute_sha256(cell / "metrics.json")})
    write_note(notes / "old.json", cell.relative_to(folder), {"metrics.json": "0" * 64})
    os.utime(notes / "old.json", (1, 1))
    return folder


@pytest.fixture
def folder(finished_repository, monkeypatch) -> Path:
    monkeypatch.chdir(finished_repository)
    return finished_repository


def test_unchanged_files_pass(folder, capsys):
    assert verify.main() == 0
    assert capsys.readouterr().out == "7 of 7 files are unchanged\n"


@pytest.mark.parametrize(("name", "remedy"), [("dvc.lock", "make repro"), ("dvc.yaml", "git checkout dvc.yaml")])
def test_a_missing_file_of_dvc_ends_the_check(folder, capsys, name, remedy):
    path = folder / name
    path.rename(folder / "away")
    try:
        assert verify.main() == 2
    finally:
        (folder / "away").rename(path)
    printed = capsys.readouterr().err
    assert printed.startswith(f"{name}: no such file")
    assert remedy in printed


FILE_PATTERNS = [
    "data/one.txt",
    "data/many/sub/b",
    "data/cells/luo/seed=1/metrics.json",
    ".dvc/cache/files/md5/*/*[!r]",
]


@pytest.mark.parametrize("pattern", FILE_PATTERNS)
@pytest.mark.parametrize("content", [b"xne\n", b"", None])
def test_changed_truncated_or_missing_files_are_named(folder, capsys, pattern, content):
    """A changed file keeps its times. `xne` also has the size of `one`, so that `dvc status` reports no change."""
    path = sorted(folder.glob(pattern))[0]
    whole, status = path.read_bytes(), path.stat()
    path.chmod(0o644)
    try:
        path.unlink() if content is None else path.write_bytes(content)
        if content is not None:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        expected = 0 if content is None and "cache" in pattern else 1  # a file that only DVC's cache lacks is no error
        assert verify.main() == expected
        assert (str(path.relative_to(folder)) in capsys.readouterr().out) == bool(expected)
    finally:
        path.write_bytes(whole)


def test_a_file_that_was_added_to_a_folder_is_named(folder, capsys):
    added = folder / "data/many/sub/c"
    added.write_text("c")
    try:
        assert verify.main() == 1
        assert "data/many/sub/c: was added to an output of many; move it elsewhere" in capsys.readouterr().out
    finally:
        added.unlink()


def test_a_damaged_list_of_a_folder_hides_no_other_damage(folder, capsys):
    (listing,) = folder.glob(".dvc/cache/files/md5/*/*.dir")
    content, one = listing.read_bytes(), (folder / "data/one.txt").read_bytes()
    listing.chmod(0o644)
    try:
        listing.write_bytes(content[:-1])
        (folder / "data/one.txt").write_bytes(b"xne\n")
        assert verify.main() == 1
        printed = capsys.readouterr().out
        line = "the list of the files of data/many is missing or damaged; if it exists, remove it"
        assert f"{listing.relative_to(folder)}: {line}" in printed
        assert "data/one.txt: has changed" in printed
    finally:
        listing.write_bytes(content)
        (folder / "data/one.txt").write_bytes(one)


def test_a_truncated_dvc_lock_is_named(folder, capsys):
    """Each stage with existing outputs must be in dvc.lock, with a digest of each output."""
    path = folder / "dvc.lock"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    try:
        for number in range(len(lines)):
            path.write_bytes(b"".join(lines[:number]))
            assert verify.main() != 0, f"cut before {lines[number]}"
            printed = capsys.readouterr()
            assert "dvc.lock" in printed.out + printed.err
            assert "7 of 7" not in printed.out
    finally:
        path.write_bytes(whole)


def test_a_folder_whose_digest_has_become_that_of_a_file_is_named(folder, capsys):
    path = folder / "dvc.lock"
    whole = path.read_text()
    try:
        for damaged in (whole.replace(".dir", ".dis"), whole.replace("md5: ", "md5: #")):
            path.write_text(damaged)
            assert verify.main() == 1
            assert "data/many: is missing or is not a file: an output of many" in capsys.readouterr().out
    finally:
        path.write_text(whole)


def test_a_stage_that_never_ran_is_not_reported(folder, capsys):
    path = folder / "dvc.yaml"
    path.write_text(f"{WORKFLOW}  never:\n    cmd: touch never\n    outs: [data/never]\n")
    try:
        assert verify.main() == 0
        assert capsys.readouterr().out == "7 of 7 files are unchanged\n"
    finally:
        path.write_text(WORKFLOW)


@pytest.mark.parametrize("damage", DAMAGE_KINDS)
def test_a_damaged_note_of_a_cell_is_named(folder, capsys, damage):
    path, rng = folder / verify.NOTES / "new.json", random.Random(damage)
    whole, other = path.read_bytes(), (folder / verify.NOTES / "old.json").read_bytes()
    try:
        for _ in range(9):
            path.write_bytes(damage_content(damage, whole, [other], rng))
            assert verify.main() == 1
            assert "finished/new.json: is damaged" in capsys.readouterr().out
    finally:
        path.write_bytes(whole)


FOLDER = '"folder": "data/cells/luo/seed=1"'


@pytest.mark.parametrize(
    "content",
    [
        "[" * 10_000 + "]" * 10_000,
        "[1, 2]",
        f'{{"key": "new", {FOLDER}}}',
        f'{{"key": "new", {FOLDER}, "files": ["metrics.json"]}}',
        f'{{"key": "new", {FOLDER}, "files": {{"metrics.json": 1}}}}',
        '{"key": "new", "folder": 1, "files": {}}',
        '{"key": "new", "folder": "data/cells/\\u0000", "files": {}}',
        f'{{"key": "new", {FOLDER}, "files": {{"../../../../one": "{"0" * 64}"}}}}',
        f'{{"key": "new", {FOLDER}, "files": {{"\\ud800": "{"0" * 64}"}}}}',
    ],
)
def test_a_note_of_another_form_with_a_right_digest_is_named(folder, capsys, content):
    path = folder / verify.NOTES / "new.json"
    whole = path.read_bytes()
    try:
        write_checked(path, content.encode())
        assert verify.main() == 1
        assert "finished/new.json: is damaged" in capsys.readouterr().out
    finally:
        path.write_bytes(whole)


def test_a_cell_without_a_note_is_reported_and_not_counted(folder, capsys):
    cell = folder / "data/cells/luo/seed=2"
    cell.mkdir()
    (cell / "metrics.json").write_text("{}")
    try:
        assert verify.main() == 0
        printed = capsys.readouterr().out
        assert printed == (
            "data/cells/luo/seed=2: no note has digests of its files; they were not checked\n"
            "7 of 7 files are unchanged\n"
        )
    finally:
        shutil.rmtree(cell)
