"""A stage reuses finished results with equal settings and inputs, and no unfinished or changed results."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from whole_profiles import load_profile, read_profile_text

from pipeline.runtime.files import write_checked
from pipeline.tracking import recorder
from pipeline.workflow.reuse import reuse_finished
from pipeline.workflow.stage import main

ROOT = Path(__file__).parents[3]
NAMES = ("weights", "metrics")
LAMBDA = load_profile("scenes")["methods"]["luo"]["lambda"]


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """Prepare a folder with params.yaml, dvc.yaml and an input, in which DVC runs a stage."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    monkeypatch.setenv("DVC_STAGE", "train@luo")
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    Path("params.yaml").write_text(read_profile_text("scenes"), encoding="utf-8")
    Path("dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    Path("data").mkdir()
    Path("data/input").write_text("1")


def run_training(out: str, *options: str, method: str = "luo", callback: Callable[[], object] = lambda: None) -> bool:
    """Run the train stage of the method into the folder `out`; return True if it trained, False if it reused files."""
    stages = []

    def run(stage):
        stages.append(stage)
        callback()
        stage.out.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            (stage.out / name).write_text(
                f"{name} {stage.settings.methods[method]['lambda']} {Path('data/input').read_text()}"
            )

    arguments = ["--method", method, "--out", out, *options]
    assert main("train", reuse_finished(run, lambda stage: [Path("data/input")], NAMES), arguments) == 0
    assert not list(Path(out).glob(".*")), "unfinished files are left"
    return bool(stages)


def test_the_second_run_reuses_the_first_ones_files(capsys):
    assert run_training("a")
    assert not run_training("b", "--set", f"methods.luo.lambda={LAMBDA}"), "the value is that of params.yaml"
    assert "done before, in a" in capsys.readouterr().out
    assert [Path("b", name).read_bytes() for name in NAMES] == [Path("a", name).read_bytes() for name in NAMES]
    Path("a/weights").unlink()
    assert not run_training("c"), "b has the same file"


@pytest.mark.parametrize("options", [("--seed", "2"), ("--set", "methods.luo.lambda=0.5")])
def test_work_with_other_settings_is_not_reused(options):
    assert run_training("a")
    assert run_training("b", *options)


@pytest.mark.parametrize("damage", [lambda: Path("a/metrics").write_text("other"), lambda: Path("a/metrics").unlink()])
def test_changed_files_are_not_reused(damage):
    assert run_training("a")
    damage()
    assert run_training("b")
    assert Path("b/metrics").read_text() == f"metrics {LAMBDA} 1"


def test_work_with_another_input_or_a_damaged_note_is_not_reused():
    assert run_training("a")
    Path("data/input").write_text("2")
    assert run_training("b")
    for note in Path("data/checkpoints/finished").iterdir():
        note.write_text("{")
    assert run_training("c")


@pytest.mark.parametrize("files", [[], {}, {"weights": 1}, {"../weights": "0"}])
def test_a_note_of_another_form_with_a_right_digest_is_not_used(files):
    assert run_training("a")
    (note,) = Path("data/checkpoints/finished").glob("*.json")
    write_checked(note, json.dumps({"key": note.stem, "folder": "a", "files": files}).encode())
    assert run_training("b")
    assert sorted(path.name for path in Path().iterdir()) == ["a", "b", "data", "dvc.yaml", "params.yaml"]


def test_a_stage_run_by_hand_reuses_nothing(monkeypatch):
    assert run_training("a")
    monkeypatch.delenv("DVC_STAGE")
    assert run_training("b")
    monkeypatch.setenv("SAYWHICH_CELL", "seed=1")
    assert not run_training("c")


def test_the_record_names_the_reused_run(monkeypatch):
    records = []
    record_run = recorder.record_run
    monkeypatch.setattr(recorder, "record_run", lambda *arguments: records.append(arguments) or record_run(*arguments))
    assert run_training("a")
    assert not run_training("b")
    ((title, params, tags, inputs),) = records
    assert (title, params["methods"]["luo"]["lambda"], tags) == ("train@luo", LAMBDA, {"taken from": "a"})
    assert list(inputs) == ["data/input"]


def test_another_name_or_evaluation_of_a_method_trains_nothing_again():
    again = ["--set", "methods.again={from: luo, method: luo, speaker: speaker, lambda: 0.9, rerank: {samples: 5}}"]
    again = [option.replace("0.9", str(LAMBDA)) for option in again]
    assert run_training("a")
    assert not run_training("b", "--set", "methods.luo.rerank={samples: 20}")
    assert not run_training("c", *again, method="again")
    assert run_training("d", *again, "--set", "methods.again.lambda=0.5", method="again")


def test_the_second_of_two_equal_runs_waits_and_reuses_the_first(capsys):
    started, release = threading.Event(), threading.Event()

    def wait_for_release():
        started.set()
        assert release.wait(600)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(run_training, "a", callback=wait_for_release)
        assert started.wait(600)
        second = pool.submit(run_training, "b")
        try:
            while "another process is working on it" not in capsys.readouterr().err:
                assert not second.done()
                time.sleep(0.02)
        finally:
            release.set()
        assert first.result(600)
        assert not second.result(600)
