"""`make repro` with the real DVC, and with stages of one shell command each."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo
from preloaded_python import find_program
from process_stopping import mark_installed
from toy_world import make_toy_params, run_command
from toy_world import write_repository as write_toy_repository

from pipeline.config import overlays
from pipeline.config.name_checks import CHECKED
from pipeline.errors import UserError
from pipeline.workflow import repro, unchanged

ROOT = Path(__file__).parents[1]
# If the file `meet` exists, each of the two trainings ends only after the other has begun.
WORKFLOW = """
stages:
  prepare:
    cmd: mkdir -p data/prepared && echo ${seed} > data/prepared/x && echo prepare >> ran.txt
    params: [seed]
    outs: [data/prepared]
  train:
    foreach: ${methods}
    do:
      cmd: >-
        echo train ${key} $OMP_NUM_THREADS >> ran.txt && mkdir -p data/models/${key} && touch began.${key} &&
        if test -e meet; then timeout 600 sh -c 'until test -e began.a && test -e began.b; do sleep 0.05; done'; fi &&
        if test "${item}" = wrong; then exit 3; fi &&
        if test "${item}" = refused; then echo "${key}: refused" >&2; touch refused; exit 2; fi &&
        if test "${item}" = late; then timeout 600 sh -c 'until test -e refused; do sleep 0.05; done';
        sleep 5; echo "${key}: late" >&2; fi &&
        if test "${item}" = long; then sleep 600; fi &&
        echo ${item} > data/models/${key}/weights && echo '{"loss":1}' > data/models/${key}/metrics.json
      deps: [data/prepared]
      params: ["methods.${key}"]
      outs: ["data/models/${key}/weights"]
      metrics: ["data/models/${key}/metrics.json"]
  adapt:
    foreach: ${methods}
    do:
      cmd: mkdir -p data/models/${key}/adapted && cp data/models/${key}/weights data/models/${key}/adapted
      deps: ["data/models/${key}/weights"]
      outs: ["data/models/${key}/adapted/weights"]
  sweep:
    cmd: mkdir -p data/sweep && cat data/prepared/x > data/sweep/all && echo sweep >> ran.txt
    deps: [data/prepared]
    outs: [data/sweep]
  report:
    cmd: mkdir -p data/report && cat data/models/*/adapted/weights data/sweep/all > data/report/all
    deps: [data/models, data/sweep]
    outs: [data/report]
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (tmp_path / "dvc.yaml").write_text(WORKFLOW)
    write_params(tmp_path)
    return tmp_path


def write_params(folder: Path, seed: int = 1, **methods: str) -> None:
    sweep = {"seeds": [1], "grid": {"a": {}}}
    params = {"seed": seed, "methods": {"a": "one", "b": "two"} | methods, "sweep": sweep}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))


def start_repro(folder: Path, python: str = sys.executable) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"PYTHONPATH": str(ROOT), "SAYWHICH_CORES": "2", "CUDA_VISIBLE_DEVICES": ""}
    command = [python, "-m", "pipeline.workflow.repro"]
    out = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True)


def run_repro(folder: Path) -> tuple[int, str]:
    """Run the program of `make repro` with the preloaded Python; return its exit status and output."""
    process = start_repro(folder, find_program("python"))
    printed, _ = process.communicate()
    return process.returncode, printed


def pop_run_stages(folder: Path) -> list[str]:
    """Return the recorded lines of the stages that ran since the last call, and clear the record."""
    record = folder / "ran.txt"
    lines = record.read_text().splitlines() if record.exists() else []
    record.unlink(missing_ok=True)
    return lines


def run_dvc(folder: Path, *command: str) -> str:
    return subprocess.run(
        [find_program("dvc"), *command], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_instances_run_in_parallel_and_dvc_finds_everything_up_to_date(folder):
    (folder / "meet").touch()
    status, printed = run_repro(folder)
    assert status == 0, printed
    lines = [line.partition("] ")[2].partition(":")[0] for line in printed.splitlines()]
    assert [sorted(part) for part in (lines[:1], lines[1:5], lines[5:])] == [
        ["prepare"], ["adapt@a", "adapt@b", "train@a", "train@b"], ["report", "sweep"]
    ], "each stage must have exactly one line"  # fmt: skip
    first, *trainings, last = pop_run_stages(folder)
    assert (first, sorted(trainings), last) == ("prepare", ["train a 1", "train b 1"], "sweep")
    assert (folder / "data/report/all").read_text() == "one\ntwo\n1\n"
    assert json.loads(run_dvc(folder, "status", "--json")) == {}
    lock = yaml.safe_load((folder / "dvc.lock").read_text())["stages"]
    (folder / "dvc.lock").unlink()
    run_dvc(folder, "repro", "--force")
    assert lock == yaml.safe_load((folder / "dvc.lock").read_text())["stages"]
    pop_run_stages(folder)
    status, printed = run_repro(folder)
    assert (status, "up to date" in printed, pop_run_stages(folder)) == (0, True, [])


def test_the_estimated_time_of_the_grid_counts_parallel_cells(tmp_path, monkeypatch, capsys):
    """On a GPU one cell runs at a time, whatever the number of cores."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("{}")
    monkeypatch.setattr(repro, "read_recorded_costs", lambda root: {"train": 590.0})
    monkeypatch.setattr(repro, "list_cells", lambda settings: ["a", "b"])
    jobs = repro.DvcJobs(lambda: None)
    monkeypatch.setattr(jobs, "_start_dvc", lambda *arguments: None)
    monkeypatch.setattr(jobs, "_wait_for_next", lambda: {repro.GRID: 0})
    for parallel_cells, minutes in ((1, 20), (2, 10)):
        assert jobs.run_stages({repro.GRID: set()}, 16, parallel_cells) == 0
        assert f"; about {minutes} min left" in capsys.readouterr().out


def test_an_untouched_repository_is_up_to_date_without_dvc(folder, monkeypatch):
    """DVC decides whenever a file was touched, added or removed."""
    monkeypatch.chdir(folder)
    write_params(folder, a="one", b="one")
    assert run_repro(folder)[0] == 0
    assert unchanged.is_recorded(), "the run must write the record"
    monkeypatch.setitem(sys.modules, "dvc.repo", None)  # DVC cannot be imported here
    assert repro.main() == 0
    paths = json.loads(unchanged.RECORD.read_bytes())["paths"]
    for path in map(
        Path, ("data/models/a/weights", "data/sweep/all", "params.yaml", "dvc.yaml", "dvc.lock", ".dvc/config")
    ):
        content = path.read_bytes()
        path.unlink()
        assert not unchanged.is_recorded(), path
        path.write_bytes(content)
        assert not unchanged.is_recorded(), path
        unchanged.write_record(paths, unchanged.hash_state(paths))
        assert unchanged.is_recorded()
    (folder / "data/sweep/more").touch()
    assert not unchanged.is_recorded()
    (folder / "data/sweep/more").unlink()
    assert unchanged.is_recorded()
    (folder / "data/sweep/link").symlink_to(folder)
    assert not unchanged.is_recorded()
    unchanged.RECORD.write_text('{"paths": 3}')
    assert not unchanged.is_recorded()


def test_a_link_to_a_folder_of_images_is_left_to_dvc(folder, monkeypatch):
    """Corpora often lie elsewhere; a repository that links to a corpus has no record of being up to date."""
    monkeypatch.chdir(folder)
    (elsewhere := folder.parent / "elsewhere").mkdir()
    (elsewhere / "image.png").touch()
    (folder / "images").mkdir()
    (folder / "images/train").symlink_to(elsewhere)
    workflow = yaml.safe_load((folder / "dvc.yaml").read_text())
    workflow["stages"]["prepare"].setdefault("deps", []).append("images")
    (folder / "dvc.yaml").write_text(json.dumps(workflow))
    for _ in range(2):
        status, printed = run_repro(folder)
        assert status == 0, printed
    assert "up to date" in printed
    assert not unchanged.is_recorded()


@pytest.mark.slow
def test_a_broken_lock_is_removed_and_the_results_come_from_the_cache(folder):
    assert run_repro(folder)[0] == 0
    pop_run_stages(folder)
    (folder / "dvc.lock").write_bytes(b"")
    (folder / ".dvc/tmp/rwlock").write_text('{"write": {"/a"')
    status, printed = run_repro(folder)
    assert (status, pop_run_stages(folder)) == (0, []), printed
    assert "dvc.lock was empty after a kill and is removed" in printed
    assert ".dvc/tmp/rwlock was cut after a kill and is removed" in printed
    assert json.loads(run_dvc(folder, "status", "--json")) == {}


def test_a_missing_file_of_captions_is_reported_before_a_folder_is_hashed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = {"captions": "text/token.txt", "train": "text/train.txt"}
    (tmp_path / "photos/text").mkdir(parents=True)
    (tmp_path / "photos/text/token.txt").touch()
    prepare = {"root": "photos", "annotations": files}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"prepare": prepare}))
    with pytest.raises(UserError, match=r"photos/text/train.txt: the file of captions .* is missing; the head of"):
        repro.check_annotations()
    (tmp_path / "photos/text/train.txt").touch()
    repro.check_annotations()
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"prepare": prepare | {"annotations": "captions.csv"}}))
    with pytest.raises(UserError, match=r"photos/captions.csv: the file of captions"):
        repro.check_annotations()


@pytest.mark.slow
def test_changed_stages_run_and_a_single_stage_has_all_cores(folder):
    assert run_repro(folder)[0] == 0
    pop_run_stages(folder)
    write_params(folder, b="three")
    assert run_repro(folder)[0] == 0
    assert pop_run_stages(folder) == ["train b 2"]
    assert (folder / "data/report/all").read_text() == "one\nthree\n1\n"


@pytest.mark.slow
def test_a_failing_stage_shows_dvcs_error_and_parallel_stages_are_kept(folder):
    (folder / "meet").touch()
    write_params(folder, a="wrong")
    status, printed = run_repro(folder)
    assert status == 1
    assert "ERROR: failed to reproduce 'train@a'" in printed
    assert "exited with 3" in printed
    assert sorted(pop_run_stages(folder)) == ["prepare", "train a 1", "train b 1"]
    assert (folder / "data/models/b/weights").exists()
    write_params(folder)
    assert run_repro(folder)[0] == 0
    assert [line[:7] for line in pop_run_stages(folder)] == ["train a", "sweep"]


def test_the_last_line_is_the_error_of_a_stage_or_names_that_stage(folder):
    write_params(folder, a="refused")
    status, printed = run_repro(folder)
    assert status == 2
    lines = printed.splitlines()
    assert "a: refused" in lines
    assert lines[-1] in ("a: refused", "repro: train@a failed; the error is above")  # b may still run


def test_the_failed_stage_is_named_after_the_lines_of_other_stages(folder):
    write_params(folder, a="refused", b="late")
    status, printed = run_repro(folder)
    assert status == 2
    lines = ["a: refused", "b: late", "repro: train@a failed; the error is above"]
    assert printed.splitlines()[-3:] == lines


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_mistake_in_the_parameters_is_one_line_before_dvc_starts(tmp_path):
    params = make_toy_params()
    params["methods"]["psst_multinomial"]["rho"] = 1.5
    write_toy_repository(tmp_path, params)
    mark_installed(tmp_path)
    (tmp_path / "dvc.yaml").write_text("stages: {train: {cmd: [}}\n")  # DVC would report this
    done = run_command(tmp_path, "make", "repro", "PROFILE=")
    lines = done.stderr.splitlines()
    assert lines[0].startswith("params.yaml: methods.psst_multinomial.rho = 1.5 is not allowed: a number from 0 to 1")
    assert [line.startswith("make: *** ") for line in lines] == [False, True]
    assert lines[1].endswith(" Error 2")
    assert done.stdout == ""
    (tmp_path / "dvc.lock").write_text(
        "schema: '2.0'\nstages:\n  validate:\n    cmd: python -m stages.validate\n    deps:\n    - path: params.yaml\n"
        f"      md5: {hashlib.md5((tmp_path / 'params.yaml').read_bytes()).hexdigest()}\n"
    )
    assert "dvc.yaml' is invalid" in run_command(tmp_path, "make", "repro", "PROFILE=").stderr, (
        "unchanged parameters must not be checked again"
    )


@pytest.mark.slow
@pytest.mark.parametrize("request_to_end", [signal.SIGINT, signal.SIGTERM])
def test_a_request_ends_all_running_stages(folder, request_to_end):
    write_params(folder, a="long", b="long")
    process = start_repro(folder)
    while not all((folder / f"began.{key}").exists() for key in "ab"):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(request_to_end)
    # `communicate` returns when no process holds the pipe; a running stage holds it for 600 s
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + request_to_end, printed
    assert f"repro: ended by {request_to_end.name} (train@a, train@b)" in printed
    write_params(folder)
    assert run_repro(folder)[0] == 0, "the ended run must leave no lock"


def test_a_broken_workflow_is_reported_by_dvc(folder):
    (folder / "dvc.yaml").write_text("stages: {train: {cmd: [}}\n")
    status, printed = run_repro(folder)
    assert status not in (0, 1)
    assert "dvc.yaml' is invalid" in printed
    assert "Traceback" not in printed


def test_caches_that_dvc_unpickles_are_private(folder, monkeypatch):
    (folder / ".dvc/config").write_text((ROOT / ".dvc/config").read_text() + "    no_scm = true\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    repro.deny_other_users()
    with Repo() as repo:
        caches = Path(repo.site_cache_dir).resolve()
    private = folder.resolve() / ".dvc/tmp"
    assert caches.is_relative_to(private)
    assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("rest", ['  prepare:\n    cmd: "mk', "  prepare:\n    cm", "  pre"])
def test_a_lock_truncated_within_a_line_is_removed(tmp_path, monkeypatch, capsys, rest):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.lock").write_text(f"schema: '2.0'\nstages:\n{rest}")
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    (tmp_path / ".dvc/tmp/rwlock").write_text('{"write": {}, "read": {}}')
    repro.remove_partial_files()
    assert not (tmp_path / "dvc.lock").exists()
    assert (tmp_path / ".dvc/tmp/rwlock").exists()
    assert capsys.readouterr().out.startswith("dvc.lock was cut after a kill and is removed")


def test_a_lock_with_conflicts_is_refused_and_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.lock").write_text(text := "schema: '2.0'\n<<<<<<< HEAD\nstages: {}\n=======\n>>>>>>> other\n")
    with pytest.raises(UserError, match=r"^dvc\.lock has conflict markers of Git: resolve them, or remove the file"):
        repro.remove_partial_files()
    assert (tmp_path / "dvc.lock").read_text() == text


def test_a_run_is_named_by_its_profile_and_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("profiles").mkdir()
    for name in ("base", "scenes", "films"):
        shutil.copy(ROOT / f"profiles/{name}.yaml", "profiles")
    params, text = tmp_path / "params.yaml", overlays.set_start(overlays.compose_profile_text("films"), 7)
    params.write_text(text)
    assert repro.make_profile_title() == "films, start 7"
    params.write_text(text.replace("methods:", "methods: # mine", 1))
    assert repro.make_profile_title() == "films, changed, start 7"
    params.write_text("rho: 1\n")
    assert repro.make_profile_title() == "data, changed, start None"


def test_a_grid_with_cells_waits_for_all_instances():
    dependencies = {"prepare": set(), "train@a": {"prepare"}, "sweep": {"prepare"}, "report": {"sweep"}}
    assert repro.order_grid_last(dependencies, cells=1) == dependencies | {"sweep": {"prepare", "train@a"}}
    assert repro.order_grid_last(dependencies, cells=0) == dependencies
    assert repro.order_grid_last({"sweep": set()}, cells=1) == {"sweep": set()}


def test_checked_parameters_are_checked_once(tmp_path, monkeypatch):
    """The stage validate gets the digest of a file that was checked without errors."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("{}")
    jobs, environments = repro.DvcJobs(lambda: None), []
    monkeypatch.setattr(jobs, "_start_process", lambda name, environment, *module: environments.append(environment))
    for status in (2, 0):
        monkeypatch.setattr(jobs, "_wait_for_next", lambda: {"validate": status, "dvc repro": 0})  # noqa: B023
        assert jobs.check_parameters() == status
        jobs.run(1, "repro")
    digest = hashlib.sha256(b"{}").hexdigest()
    assert [environment.get(CHECKED) for environment in environments] == [None, None, None, digest]


def test_missing_parameters_are_reported_in_one_line(tmp_path):
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/validate.py").touch()  # the check itself is that of this repository
    status, printed = run_repro(tmp_path)
    assert status == 2
    assert printed.startswith("params.yaml: ")
    assert printed.count("\n") == 1


def test_a_training_waits_for_the_equal_training_of_an_earlier_method():
    methods = {
        "mle": {"from": "likelihood", "speaker": "speaker"},
        "luo": {"from": "luo", "speaker": "speaker", "lambda": date(2026, 1, 1)},  # YAML has dates
        "mle_rerank": {"method": "mle", "from": "likelihood", "speaker": "speaker", "rerank": {"samples": 5}},
        "mle_pragmatic": {"from": "likelihood", "method": "mle", "speaker": "speaker", "pragmatic": {"alpha": 1.0}},
        "luo_low": {"from": "luo", "method": "luo", "speaker": "speaker", "lambda": 0.5, "rerank": {"samples": 5}},
    }
    stages = {f"{stage}@{name}": {"prepare"} for stage in ("train", "adapt", "evaluate") for name in methods}
    del stages["adapt@mle_pragmatic"]  # a stage that is not outdated
    ordered = repro.order_equal_trainings(stages, methods)
    assert {stage: inputs - {"prepare"} for stage, inputs in ordered.items() if inputs != {"prepare"}} == {
        "train@mle_rerank": {"train@mle"},
        "adapt@mle_rerank": {"adapt@mle"},
        "train@mle_pragmatic": {"train@mle"},
    }
