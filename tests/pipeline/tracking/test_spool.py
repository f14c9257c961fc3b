"""Records that were damaged before they were sent: each is named and kept, and all others arrive in MLflow."""

import random
import shutil
from pathlib import Path

import pytest
from file_damage import damage_content
from recorded_runs import find_artifact, find_runs, list_waiting_runs, read_history, sync

from pipeline.tracking import recorder


def record(name: str) -> Path:
    """Record a run of three steps with an artifact; return its folder in the spool."""
    with recorder.record_run(name, {"a": 1}) as run:
        for step in range(3):
            run.log_metrics({"loss": step / 2}, step)
        run.log_text("two\nlines", "notes/a.txt")
    return next(folder for folder in list_waiting_runs() if name in folder.name)


@pytest.fixture
def run_folder(manual_sending, database) -> Path:
    return record("run")


def list_damaged_files() -> list[Path]:
    return [path for path in Path("mlflow-spool/damaged").rglob("*") if path.is_file()]


def test_a_flipped_bit_anywhere_is_named_and_nothing_wrong_arrives(run_folder, capsys):
    """Flip a random bit of each line, including the head; afterwards no record waits and none is sent again."""
    path, rng = run_folder / "records.jsonl", random.Random(1)
    lines = path.read_bytes().splitlines(keepends=True)
    shutil.copytree(run_folder, "whole")
    for number, line in enumerate(lines):
        path.write_bytes(b"".join([*lines[:number], damage_content("bit", line, [], rng), *lines[number + 1 :]]))
        assert sync() == 1
        printed = capsys.readouterr().err
        assert run_folder.name in printed
        assert "mlflow-spool/damaged" in printed
        assert list_waiting_runs() == []
        assert list_damaged_files() != []
        assert sync() == 0
        assert capsys.readouterr().err == ""
        shutil.rmtree("mlflow-spool/damaged")
        if "run" in find_runs():
            assert set(read_history(find_runs()["run"], "loss")) <= {(0, 0), (1, 0.5), (2, 1)}
            assert set(find_runs()["run"].data.params.values()) <= {"1"}
        shutil.copytree("whole", run_folder)


@pytest.mark.parametrize("share", [0, 1, 0.3, 0.7, -1])
def test_a_truncated_file_of_records_is_named(run_folder, capsys, share):
    path = run_folder / "records.jsonl"
    content = path.read_bytes()
    size = int(share * len(content)) if 0 < share < 1 else share  # 0, 1 and -1 are ends of the slice
    path.write_bytes(content[:size])
    assert sync() == 1
    assert run_folder.name in capsys.readouterr().err
    assert list_waiting_runs() == []
    assert sync() == 0


def test_records_without_an_end_are_sent_as_killed(run_folder, capsys):
    path = run_folder / "records.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert sync() == 0
    assert "sent as KILLED: its records have no final status" in capsys.readouterr().out
    assert find_runs()["run"].info.status == "KILLED"


def test_an_artifact_that_is_missing_or_damaged_is_named_once_and_the_rest_is_sent(run_folder, capsys):
    other = record("other")
    (run_folder / "artifacts/notes/a.txt").unlink()
    (other / "artifacts/notes/a.txt").write_text("two\nlimes")
    assert sync() == 1
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.split(": ")[0] for line in lines) == sorted([run_folder.name, other.name])
    assert any("notes/a.txt is missing and not sent" in line for line in lines)
    assert any("notes/a.txt is damaged and not sent; it is kept in" in line for line in lines)
    assert list_waiting_runs() == []
    assert sync() == 0
    for name in ("run", "other"):
        assert find_runs()[name].info.status == "FINISHED"
        assert len(read_history(find_runs()[name], "loss")) == 3
        assert not find_artifact(find_runs()[name], "notes/a.txt").exists()
    assert [path.read_text() for path in list_damaged_files()] == ["two\nlimes"]


def test_records_of_another_run_are_not_sent(run_folder, capsys):
    other = record("other")
    shutil.copy(other / "records.jsonl", run_folder)
    assert sync() == 1
    assert f"{run_folder.name}: holds the records of another run" in capsys.readouterr().err
    assert set(find_runs()) == {"other"}


def test_records_without_checksums_are_kept_and_not_sent(run_folder, capsys):
    path = run_folder / "records.jsonl"
    records = [line.split("\t")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(records) + "\n")
    assert sync() == 1
    output = capsys.readouterr()
    assert "its first record is damaged: no record is sent; it is kept in" in output.err
    assert output.out == f"{run_folder.name}: not sent\n"
    assert find_runs() == {}
