"""Records that were damaged before they were sent: each is named and kept, and all others arrive in MLflow."""

import random
import shutil
from pathlib import Path

import pytest
from damaged import damage
from recorded_runs import artifact, history, runs, sync, waiting

from pipeline.tracking import recorder


def record(name: str) -> Path:
    """Record a run of three steps with an artifact; return its folder in the spool."""
    with recorder.record_run(name, {"a": 1}) as run:
        for step in range(3):
            run.metrics({"loss": step / 2}, step)
        run.text("two\nlines", "notes/a.txt")
    return next(folder for folder in waiting() if name in folder.name)


@pytest.fixture
def whole(spooled, database) -> Path:
    return record("run")


def set_aside() -> list[Path]:
    return [path for path in Path("mlflow-spool/damaged").rglob("*") if path.is_file()]


def test_a_flipped_bit_anywhere_is_named_and_nothing_wrong_arrives(whole, capsys):
    """Flip a random bit of each line, the head's too; afterwards no record waits and none is sent again."""
    path, rng = whole / "records.jsonl", random.Random(1)
    lines = path.read_bytes().splitlines(keepends=True)
    shutil.copytree(whole, "whole")
    for number, line in enumerate(lines):
        path.write_bytes(b"".join([*lines[:number], damage("bit", line, [], rng), *lines[number + 1 :]]))
        assert sync() == 1
        printed = capsys.readouterr().err
        assert whole.name in printed
        assert "mlflow-spool/damaged" in printed
        assert waiting() == []
        assert set_aside() != []
        assert sync() == 0
        assert capsys.readouterr().err == ""
        shutil.rmtree("mlflow-spool/damaged")
        if "run" in runs():
            assert set(history(runs()["run"], "loss")) <= {(0, 0), (1, 0.5), (2, 1)}
            assert set(runs()["run"].data.params.values()) <= {"1"}
        shutil.copytree("whole", whole)


@pytest.mark.parametrize("kept", [0, 1, 0.3, 0.7, -1])
def test_a_truncated_file_of_records_is_named(whole, capsys, kept):
    path = whole / "records.jsonl"
    content = path.read_bytes()
    size = int(kept * len(content)) if 0 < kept < 1 else kept
    path.write_bytes(content[:size])
    assert sync() == 1
    assert whole.name in capsys.readouterr().err
    assert waiting() == []
    assert sync() == 0


def test_records_without_an_end_are_sent_as_killed(whole, capsys):
    path = whole / "records.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert sync() == 0
    assert "sent as KILLED: its records have no end" in capsys.readouterr().out
    assert runs()["run"].info.status == "KILLED"


def test_an_artifact_that_is_missing_or_damaged_is_named_once_and_the_rest_is_sent(whole, capsys):
    other = record("other")
    (whole / "artifacts/notes/a.txt").unlink()
    (other / "artifacts/notes/a.txt").write_text("two\nlimes")
    assert sync() == 1
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.split(": ")[0] for line in lines) == sorted([whole.name, other.name])
    assert any("notes/a.txt is missing and not sent" in line for line in lines)
    assert any("notes/a.txt is damaged and not sent; it is kept in" in line for line in lines)
    assert waiting() == []
    assert sync() == 0
    for name in ("run", "other"):
        assert runs()[name].info.status == "FINISHED"
        assert len(history(runs()[name], "loss")) == 3
        assert not artifact(runs()[name], "notes/a.txt").exists()
    assert [path.read_text() for path in set_aside()] == ["two\nlimes"]


def test_records_of_another_run_are_not_sent_as_this_ones(whole, capsys):
    other = record("other")
    for name, path in (("a", whole), ("b", other)):
        shutil.copy(path / "records.jsonl", name)
    shutil.copy("b", whole / "records.jsonl")
    assert sync() == 1
    assert f"{whole.name}: holds the records of another run" in capsys.readouterr().err
    assert set(runs()) == {"other"}


def test_records_without_checksums_are_kept_and_not_sent(whole, capsys):
    path = whole / "records.jsonl"
    records = [line.split("\t")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(records) + "\n")
    assert sync() == 1
    assert "its first record is damaged: nothing of it is sent; it is kept in" in capsys.readouterr().err
    assert runs() == {}
