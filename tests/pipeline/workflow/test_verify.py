"""`make verify` names every file that is not what was written, with DVC's own lock and cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime.files import sha256
from pipeline.workflow import verify

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
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (folder / "dvc.yaml").write_text(WORKFLOW)
    (folder / "data").mkdir()
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=folder, check=True)
    cell = folder / "data/cells/luo/seed=1"
    cell.mkdir(parents=True)
    (cell / "metrics.json").write_text("{}")
    notes = folder / verify.NOTES
    notes.mkdir(parents=True)
    said = {"folder": "data/cells/luo/seed=1", "files": {"metrics.json": sha256(cell / "metrics.json")}}
    (notes / "new.json").write_text(json.dumps(said))
    (notes / "old.json").write_text(json.dumps(said | {"files": {"metrics.json": "0" * 64}}))
    os.utime(notes / "old.json", (1, 1))
    return folder


@pytest.fixture
def folder(finished, monkeypatch) -> Path:
    monkeypatch.chdir(finished)
    return finished


def test_all_is_what_was_written(folder, capsys):
    assert verify.main() == 0
    assert capsys.readouterr().out == "7 of 7 files are what was written\n"


CHANGED = ["data/one.txt", "data/many/sub/b", "data/cells/luo/seed=1/metrics.json", ".dvc/cache/files/md5/*/*[!r]"]


@pytest.mark.parametrize("pattern", CHANGED)
@pytest.mark.parametrize("content", [b"xne\n", b"", None])
def test_what_is_changed_cut_or_missing_is_named(folder, capsys, pattern, content):
    """The size and the times stay, which is what `dvc status` looks at."""
    path = sorted(folder.glob(pattern))[0]
    whole, status = path.read_bytes(), path.stat()
    path.chmod(0o644)
    try:
        path.unlink() if content is None else path.write_bytes(content)
        if content is not None:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        expected = 0 if content is None and "cache" in pattern else 1  # what DVC has no copy of is no mistake
        assert verify.main() == expected
        assert (str(path.relative_to(folder)) in capsys.readouterr().out) == bool(expected)
    finally:
        path.write_bytes(whole)


def test_without_a_lock_there_is_nothing_to_verify(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert verify.main() == 2
    assert "make repro" in capsys.readouterr().err
