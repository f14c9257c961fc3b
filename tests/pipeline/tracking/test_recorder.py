"""Runs recorded by the real MLflow, with a SQLite database for each test."""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import psutil
import pytest
from preloaded_python import find_program
from recorded_runs import find_artifact, find_runs, list_waiting_runs, read_history, sync

from pipeline.tracking import __main__, recorder, sender
from pipeline.tracking.tracker import connect

PYTHON = sys.executable  # this Python has not imported mlflow, unlike the preloaded one of the fixtures
WRITERS = int(os.environ.get("SAYWHICH_WRITERS", "4"))
WRITER = """
import os, sys
sys.executable = os.environ.pop("SENDERS_PYTHON", sys.executable)
from pipeline.tracking import recorder, spool
with recorder.record_run(sys.argv[1], {"seed": 1}) as run:
    for step in range(200):
        run.log_metrics({"loss": 1 / (step + 1), "R@1 (hard)": step}, step)
    if len(sys.argv) > 2:
        print("wait", flush=True)
        sys.stdin.read()
assert "mlflow" not in sys.modules  # training does not wait for its import
"""


def run_writer(name: str, **environment: str) -> subprocess.CompletedProcess:
    """Record a run in a process of its own; where PYTHONPATH is not given, its sender has imported mlflow already."""
    if "PYTHONPATH" not in environment:
        environment["SENDERS_PYTHON"] = find_program("python")
    command = [PYTHON, "-c", WRITER, name]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


EXPECTED = [(step, 1 / (step + 1)) for step in range(200)]


@pytest.mark.slow
def test_first_writers_at_once_lose_nothing(tmp_path):
    """The database is new. The records of a writer that does not reach it in time stay for its sender or for `sync`."""
    writers = [
        subprocess.Popen([PYTHON, "-c", WRITER, f"run {i}"], stderr=subprocess.PIPE, text=True) for i in range(WRITERS)
    ]
    printed = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    if WRITERS <= 4:
        assert printed == [""] * WRITERS
        assert list_waiting_runs() == []
    print(f"{len(list_waiting_runs())} of {WRITERS} wait")
    while find_senders():
        time.sleep(0.1)
    assert sync() == 0
    assert list_waiting_runs() == []
    recorded = find_runs()
    assert sorted(recorded) == sorted(f"run {i}" for i in range(WRITERS))
    for run in recorded.values():
        assert run.info.artifact_uri == f"{(tmp_path / 'mlartifacts').as_uri()}/{run.info.run_id}/artifacts"
        assert run.info.status == "FINISHED"
        assert read_history(run, "loss") == EXPECTED
        assert read_history(run, "R_at_1 hard") == [(step, step) for step in range(200)]


def test_a_killed_run_is_recorded_as_killed_with_its_metrics_and_the_load_of_the_machine(database):
    command = [PYTHON, "-c", WRITER, "doomed", "wait"]
    environment = os.environ | {"SENDERS_PYTHON": find_program("python")}
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    assert writer.stdout.readline() == "wait\n"
    while "doomed" not in find_runs():
        time.sleep(0.1)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    while list_waiting_runs():  # the sender runs until all records are sent
        time.sleep(0.1)
    run = find_runs()["doomed"]
    assert run.info.status == "KILLED"
    assert read_history(run, "loss") == EXPECTED
    assert {"system/cpu_utilization_percentage", "system/system_memory_usage_megabytes"} <= run.data.metrics.keys()


def test_records_wait_where_mlflow_is_missing(tmp_path, database):
    writer = run_writer("early", PYTHONPATH=os.pathsep.join([write_broken_mlflow(tmp_path), *sys.path]))
    assert writer.returncode == 0
    (line,) = writer.stderr.splitlines()
    assert "No module named mlflow" in line
    assert "tracking sync" in line
    assert len(list_waiting_runs()) == 1
    before_sync = time.time_ns() // 1_000_000
    assert __main__.main(["sync"]) == 0
    assert list_waiting_runs() == []
    run = find_runs()["early"]
    assert run.info.status == "FINISHED"
    assert read_history(run, "loss") == EXPECTED
    assert run.info.start_time <= run.info.end_time <= before_sync  # the times are those of the run, not of the sync


@pytest.mark.slow
def test_a_server_that_does_not_answer(database):
    address = "http://somebody:s3cret@127.0.0.1:9"
    writer = run_writer("far", MLFLOW_TRACKING_URI=address, MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    assert writer.returncode == 0
    (line,) = writer.stderr.splitlines()
    assert "http://***@127.0.0.1:9" in line
    kept = [path for path in Path("mlflow-spool").rglob("*") if path.is_file()]
    assert any("127.0.0.1" in path.read_text() for path in kept)
    assert not [path for path in kept if "s3cret" in path.read_text()]
    assert sync() == 0
    assert read_history(find_runs()["far"], "loss") == EXPECTED


def test_a_database_locked_by_another_process(database, monkeypatch, capsys):
    monkeypatch.setattr(recorder, "MAX_WAIT", 3.0)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with recorder.record_run("patient") as run:
        run.log_metrics({"loss": 1.0}, 0)
    assert "not done after 3 s" in capsys.readouterr().err
    other.rollback()
    while list_waiting_runs():  # the run's sender continues to try
        time.sleep(0.1)
    assert read_history(find_runs()["patient"], "loss") == [(0, 1.0)]


def test_the_content_of_a_recorded_run(manual_sending, database, tmp_path):
    import mlflow

    out = tmp_path / "out"
    out.mkdir()
    (out / "weights.safetensors").write_bytes(b"weights")
    params = {"train": {"epochs": 3, "options": {}}, "name": "x", "select": None, "eos": True, "long": "y" * 9000}
    with recorder.record_run("full", params, {"stage": "train"}, {"data/prepared": "abc"}) as run:
        run.log_metrics({"val/R@10": float("nan")}, 7)
        run.log_text("two\nlines", "notes/a.txt")
        for i in range(2):
            run.log_table({"image": [1, 2], "caption": ["ein Hund", f"größer {i}"]}, f"captions/{i}.json")
        run.log_outputs([out / "weights.safetensors", out])
    assert sync() == 0
    run = find_runs()["full"]
    assert run.data.params["train.epochs"] == "3"
    assert run.data.params["train.options"] == "{}"
    assert (run.data.params["name"], run.data.params["select"], run.data.params["eos"]) == ("x", "null", "true")
    assert run.data.tags["stage"] == "train"
    assert run.data.tags["input.data/prepared"] == "abc"
    weights = hashlib.sha256(b"weights").hexdigest()
    assert run.data.tags[f"output.{out}/weights.safetensors"] == weights
    assert run.data.tags[f"output.{out}"] == hashlib.sha256(f"weights.safetensors {weights}".encode()).hexdigest()
    assert find_artifact(run, "outputs/weights.safetensors").read_bytes() == b"weights"
    assert find_artifact(run, "notes/a.txt").read_text() == "two\nlines"
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("data/prepared", "abc")
    (written,) = run.outputs.model_outputs
    model = connect().client.get_logged_model(written.model_id)
    assert (model.name, model.status, model.source_run_id) == ("full", "READY", run.info.run_id)
    assert model.params == {"path": f"{out}/weights.safetensors", "sha256": weights}
    mlflow.set_tracking_uri(f"sqlite:///{database}")
    table = mlflow.MlflowClient().load_table(run.info.experiment_id, "captions/1.json")
    assert table["caption"].tolist() == ["ein Hund", "größer 1"]
    ((step, value),) = read_history(run, "val/R_at_10")
    assert step == 7
    assert value != value


def test_the_commit_and_whether_files_differ_from_it(manual_sending, database, tmp_path):
    def git(*arguments: str) -> str:
        author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(["git", *author, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    git("init")
    for name in ("code.py", "dvc.lock"):
        Path(name).write_text("1")
    git("add", "code.py", "dvc.lock")
    git("commit", "-m", "first")
    with recorder.record_run("clean"):
        pass
    Path("dvc.lock").write_text("2")  # DVC changes it during a repro
    with recorder.record_run("locked"):
        pass
    Path("code.py").write_text("2")
    with recorder.record_run("dirty"):
        pass
    assert sync() == 0
    tags = {name: run.data.tags for name, run in find_runs().items()}
    assert {name: tag["git.dirty"] for name, tag in tags.items()} == {
        "clean": "false",
        "locked": "false",
        "dirty": "true",
    }
    assert tags["clean"]["mlflow.source.git.commit"] == git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (SystemExit(2), "FAILED"), (SystemExit(0), "FINISHED")],
)
def test_the_status_of_a_run(manual_sending, error, status):
    with pytest.raises(error if isinstance(error, type) else type(error)), recorder.record_run("end"):
        raise error
    (folder,) = list_waiting_runs()
    last = json.loads((folder / "records.jsonl").read_text().splitlines()[-1].split("\t")[0])
    assert last["status"] == status


def test_a_child_run_is_tagged_with_its_parent(manual_sending, database, monkeypatch):
    with recorder.record_run("sweep") as parent:
        monkeypatch.setenv("SAYWHICH_PARENT_RUN", parent.environment["SAYWHICH_PARENT_RUN"])
        monkeypatch.setenv("SAYWHICH_CELL", "lambda=0.1_seed=1")
        with recorder.record_run("train@luo"):
            pass
    assert sync() == 0
    recorded = find_runs()
    parent_id = recorded["sweep"].info.run_id
    assert recorded["train@luo lambda=0.1_seed=1"].data.tags["mlflow.parentRunId"] == parent_id
    assert "mlflow.parentRunId" not in recorded["sweep"].data.tags
    monkeypatch.delenv("SAYWHICH_CELL")
    monkeypatch.setenv("SAYWHICH_PARENT_RUN", parent_id)  # MLflow's run id is accepted, too
    with recorder.record_run("later"):
        pass
    assert sync() == 0
    assert find_runs()["later"].data.tags["mlflow.parentRunId"] == parent_id


def test_runs_of_a_profile_are_children_of_one_run(manual_sending, database, monkeypatch):
    for profile, names in (("scenes, start 1", ("sweep", "train@mle")), ("own photos", ("adapt@luo",))):
        monkeypatch.setenv("SAYWHICH_PROFILE", profile)
        for name in names:
            with recorder.record_run(name) as run:
                pass
    with monkeypatch.context() as patch:
        patch.setenv("SAYWHICH_PARENT_RUN", run.key)
        with recorder.record_run("cell"):
            pass
    monkeypatch.delenv("SAYWHICH_PROFILE")
    with recorder.record_run("alone"):
        pass
    assert sync() == 0
    recorded = find_runs()
    parents = {name: run.data.tags.get("mlflow.parentRunId") for name, run in recorded.items()}
    scenes, photos = (recorded[name].info.run_id for name in ("scenes, start 1", "own photos"))
    assert parents == {
        "scenes, start 1": None, "sweep": scenes, "train@mle": scenes,
        "own photos": None, "adapt@luo": photos, "cell": recorded["adapt@luo"].info.run_id, "alone": None,
    }  # fmt: skip
    assert recorded["own photos"].info.status == "FINISHED"
    assert [recorded[name].data.tags.get("profile") for name in ("sweep", "cell", "alone")] == [
        "scenes, start 1", "own photos", None,
    ]  # fmt: skip


def write_broken_mlflow(folder: Path) -> str:
    """Write a folder with an MLflow that cannot be imported, and return its path for PYTHONPATH."""
    (folder / "broken").mkdir()
    (folder / "broken/mlflow.py").write_text("raise ImportError('No module named mlflow')")
    return str(folder / "broken")


def find_senders() -> list[psutil.Process]:
    """Return the senders of this test's spool."""
    folder, found = str(Path.cwd()), []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[-3:] == ["-m", "pipeline.tracking", "send"] and process.cwd() == folder:
                found.append(process)
    return found


@pytest.mark.slow
def test_one_sender_sends_all_runs_including_children(tmp_path, database):
    path = os.pathsep.join([write_broken_mlflow(tmp_path), *sys.path])  # a sender that the children start cannot send
    with recorder.record_run("grid") as parent:
        wait_until(lambda: "grid" in find_runs())  # the grid's sender runs
        for number in range(2):
            environment = {**parent.environment, "PYTHONPATH": path}
            command = [PYTHON, "-c", WRITER, f"child {number}"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")
        # this run is no child; the sender may end with the grid's run
        assert run_writer("after", PYTHONPATH=path).stderr == ""
    assert list_waiting_runs() == []
    recorded = find_runs()
    assert sorted(recorded) == ["after", "child 0", "child 1", "grid"]
    for number in range(2):
        child = recorded[f"child {number}"]
        assert child.data.tags["mlflow.parentRunId"] == recorded["grid"].info.run_id
        assert child.info.status == "FINISHED"
        assert read_history(child, "loss") == EXPECTED


@pytest.mark.slow
def test_another_experiment_has_another_sender(database, tmp_path):
    with recorder.record_run("here"):  # the run's sender keeps running
        assert run_writer("there", MLFLOW_EXPERIMENT_NAME="other").stderr == ""
        assert len(find_senders()) == 2
    assert list(find_runs()) == ["here"]


@pytest.mark.slow
def test_a_sender_that_is_killed_is_replaced(database):
    command = [PYTHON, "-c", WRITER, "long", "wait"]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "wait\n"
    while "long" not in find_runs():
        time.sleep(0.1)
    (first,) = find_senders()
    first.kill()
    writer.communicate()
    assert list_waiting_runs() == []
    assert find_runs()["long"].info.status == "FINISHED"
    assert read_history(find_runs()["long"], "loss") == EXPECTED


def test_an_idle_sender_ends(manual_sending, database, monkeypatch):
    monkeypatch.setattr(sender, "IDLE", 0.1)
    with recorder.record_run("first"):
        pass
    sender.serve_spool(Path("mlflow-spool"))
    assert find_runs()["first"].info.status == "FINISHED"
    assert list_waiting_runs() == []


def test_runs_that_begin_after_the_machine_slept_do_not_wait_for_earlier_runs(manual_sending, database, monkeypatch):
    """More time than IDLE may pass between two checks of the sender, while a grid's run is still open."""
    monkeypatch.setattr(sender, "IDLE", 0.0)
    serving = Thread(target=sender.serve_spool, args=(Path("mlflow-spool"),))
    with recorder.record_run("grid"):
        serving.start()
        wait_until(lambda: "grid" in find_runs())
        with recorder.record_run("cell"):
            pass
        wait_until(lambda: len(list_waiting_runs()) == 1)
        assert find_runs()["cell"].info.status == "FINISHED"
        assert serving.is_alive()
    serving.join(600)
    assert list_waiting_runs() == []


def wait_until(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_sending_twice_gives_one_run_with_each_metric_once(manual_sending, database, capsys):
    Path("x.safetensors").touch()
    with recorder.record_run("twice", {"a": 1}, inputs={"data": "abc"}) as run:
        run.log_outputs([Path("x.safetensors")])
        for step in range(3):
            run.log_metrics({"loss": step}, step)
        run.log_text("x", "x.txt")
    (folder,) = list_waiting_runs()
    copy = Path(shutil.copytree(folder, "copy"))
    with open(copy / "records.jsonl", "a") as file:
        file.write('{"metrics": {"loss": 9.0}, "st')  # a line that was never completed
    assert sync() == 0
    copy.rename(folder)  # as if the sender had been killed just before the end
    assert sync() == 1
    assert "its last record is cut off and not sent" in capsys.readouterr().err
    tracker = connect()
    assert len(tracker.client.search_runs([tracker.experiment])) == 1
    run = find_runs()["twice"]
    assert read_history(run, "loss") == [(0, 0), (1, 1), (2, 2)]
    assert len(run.inputs.dataset_inputs) == len(run.outputs.model_outputs) == 1
    assert len(tracker.client.search_logged_models([tracker.experiment])) == 1


def test_mlflows_page_opens_on_runs_not_traces():
    """MLflow's own scripts contain the value of the tag."""
    tracker = connect()
    kind = tracker.client.get_experiment(tracker.experiment).tags["mlflow.experimentKind"]
    assert kind == "custom_model_development"  # the scripts also contain the kinds that open on traces
    import mlflow

    scripts = (Path(mlflow.__file__).parent / "server/js/build/static/js").glob("*.js")
    assert any(f'"{kind}"' in text for text in (path.read_text(encoding="utf-8") for path in scripts))


@pytest.mark.slow
def test_a_copy_of_the_repository_writes_into_itself_alone(manual_sending, tmp_path, monkeypatch):
    def record_and_sync(name):
        Path(f"{name}.safetensors").touch()
        with recorder.record_run(name) as run:
            run.log_text(name, "note.txt")
            run.log_outputs([Path(f"{name}.safetensors")])
        assert sync() == 0

    (tmp_path / "first").mkdir()
    monkeypatch.chdir(tmp_path / "first")
    record_and_sync("before")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")

    def read_files():
        return {path: path.read_bytes() for path in (tmp_path / "first").rglob("*") if path.is_file()}

    first_files = read_files()
    monkeypatch.chdir(tmp_path / "copy")
    record_and_sync("after")
    assert read_files() == first_files
    for name in ("before", "after"):  # records from before the copy are read from the copy, too
        note = find_artifact(find_runs()[name], "note.txt")
        assert note.is_relative_to(tmp_path / "copy")
        assert note.read_text() == name


def test_sync_leaves_open_runs_alone_and_continues_after_a_failure(manual_sending, database, capsys):
    with recorder.record_run("first"):
        pass
    (first,) = list_waiting_runs()
    (first / "records.jsonl").write_text("no json\n")
    with recorder.record_run("second"):
        with recorder.record_run("third"):
            pass
        assert sync() == 1
        assert find_runs().keys() == {"third"}
    assert "first" in capsys.readouterr().err
    assert sync() == 0
    assert find_runs().keys() == {"second", "third"}


def test_sync_continues_where_another_process_has_sent_a_run_meanwhile(manual_sending, database, monkeypatch):
    for name in ("first", "second"):
        with recorder.record_run(name):
            pass
    first, is_recording = next(folder for folder in list_waiting_runs() if "first" in folder.name), sender.is_recording

    def remove_before_check(folder):
        if folder == first:
            shutil.rmtree(folder)
        return is_recording(folder)

    monkeypatch.setattr(sender, "is_recording", remove_before_check)
    assert sync() == 0
    assert find_runs().keys() == {"second"}


@pytest.mark.usefixtures("manual_sending", "database")
def test_names_and_texts_that_mlflow_cannot_store_are_changed_and_do_not_end_the_run():
    """A byte of a file name may be invalid in UTF-8; a path may have two dots or end with a slash after a cut."""
    inputs = {"data/../photos": "abc", "x" * 243 + "/photos": "d"}
    with recorder.record_run("odd", {"photo": "a\udcff.jpg"}, inputs=inputs) as run:
        run.set_tags({"photo": "a\udcff.jpg"})
        run.log_table({"photo": ["a\udcff.jpg"]}, "captions.json")
    assert sync() == 0
    run = find_runs()["odd"]
    assert run.data.tags["photo"] == run.data.params["photo"] == "a?.jpg"
    assert run.data.tags["input.data/_/photos"] == "abc"
    assert json.loads(find_artifact(run, "captions.json").read_text())["data"] == [["a?.jpg"]]


def test_an_experiment_of_another_client_keeps_the_paths_of_its_artifacts(database, tmp_path, monkeypatch):
    client = connect().client
    experiment = client.create_experiment("mine", (tmp_path / "elsewhere").as_uri())
    run = client.create_run(experiment)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    assert connect().experiment == experiment
    assert client.get_run(run.info.run_id).info.artifact_uri == run.info.artifact_uri
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "")  # an empty name counts as unset
    assert client.get_experiment(connect().experiment).name == "saywhich"


def test_a_full_disk_does_not_end_the_run(manual_sending, monkeypatch, capsys):
    with recorder.record_run("full") as run:
        run._file.close()
        run._file = open("/dev/full", "w", buffering=1)  # noqa: SIM115 (closed by the run)
        run.log_metrics({"loss": 1.0}, 0)
        run.log_metrics({"loss": 1.0}, 1)
        run.log_text("x", "x.txt")
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left" in line


def test_tracking_off_writes_nothing(monkeypatch):
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    with recorder.record_run("none") as run:
        run.log_metrics({"loss": 1.0}, 0)
        run.log_text("x", "x.txt")
        run.log_table({"a": [1]}, "a.json")
        run.log_outputs([Path("nowhere")])
        assert "SAYWHICH_PARENT_RUN" not in run.environment
    assert list(Path().iterdir()) == []


@pytest.mark.usefixtures("manual_sending")
@pytest.mark.parametrize("name", ["a b?c#d%41", "'quoted\" é&x=1"])
def test_a_repository_of_any_name_has_its_records_within_it(database, tmp_path, monkeypatch, name):
    (folder := tmp_path / name / "inner?").mkdir(parents=True)
    shutil.move(database, folder / "mlflow.db")
    monkeypatch.chdir(folder)
    with recorder.record_run("train@luo") as record:
        record.log_text("a dog runs", "captions/first.txt")
    assert sync() == 0
    (run,) = find_runs().values()
    client = connect().client
    assert Path(client.download_artifacts(run.info.run_id, "captions/first.txt")).read_text() == "a dog runs"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert [path.name for path in (tmp_path / name).iterdir()] == ["inner?"]
    assert (folder / "mlartifacts").is_dir()


@pytest.mark.parametrize("ending", [0, 1, 2, 3])
def test_a_run_waits_for_the_last_of_three_senders(tmp_path, monkeypatch, capfd, ending):
    """The first `ending` senders end at once; the next, if there is one, sends the records."""
    records = tmp_path / "run" / "records.jsonl"
    records.parent.mkdir()
    records.touch()
    started = []

    class EndingProcess:
        def __init__(self, *_command, **_options):
            started.append(self)
            self.number = len(started)

        def poll(self) -> int | None:
            if self.number <= ending:
                return 1
            records.unlink(missing_ok=True)
            return None

    monkeypatch.setattr(recorder.subprocess, "Popen", EndingProcess)
    recorder.Sender(records.parent).wait()
    assert len(started) == min(ending + 1, 3)
    assert ("no sender stays alive" in capfd.readouterr().err) == (ending == 3)
