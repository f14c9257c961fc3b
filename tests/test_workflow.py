"""A toy world with the real tools: DVC's DAG, Snakemake's grid, MLflow's record, and killed stages.

One `make repro` of 34 scenes and one-epoch trainings runs first. The tests inspect its results, change a copy or undo
their changes.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import cycle
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from dvc.cli import main as dvc
from dvc.repo import Repo
from file_damage import list_stage_files, try_damages
from full_disk import mount_small_disk, try_full_disk
from missing_home import USER, run_without_home
from stage_interruption import STAGES as ARGUMENTS
from stage_interruption import interrupt, make_work
from toy_world import ROOT, commit_all, list_run_stages, succeed

from pipeline.evaluation.summary import select_summary_metrics
from pipeline.workflow import stage as stage_module
from pipeline.workflow.dvc_settings import write_local_settings
from stages import evaluate, train

slow = partial(pytest.param, marks=pytest.mark.slow)
METHODS = ("mle", "psst_multinomial", "luo")


def list_rerun_stages(output: str) -> list[str]:
    """Return the stages that a `dvc repro` with this output ran, without `validate`, which runs after every edit."""
    return [stage for stage in list_run_stages(output) if stage != "validate"]


def set_parameter(folder: Path, *keys: str, to: object) -> None:
    params = json.loads((folder / "params.yaml").read_text())
    section = params
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = to
    (folder / "params.yaml").write_text(json.dumps(params))


@pytest.fixture(scope="module")
def world(toy_repository, tmp_path_factory) -> tuple[Path, list[str]]:
    """Return this file's copy of the toy repository, and the stages that ran."""
    repository, output = toy_repository
    return Path(
        shutil.copytree(repository, tmp_path_factory.mktemp("world") / "world", symlinks=True)
    ), list_rerun_stages(output)


@pytest.fixture
def folder(world, tmp_path) -> Path:
    """Return a copy of the finished world, which the test may change."""
    copy = tmp_path / "world"
    shutil.copytree(world[0], copy, symlinks=True)
    return copy


def test_the_dag_runs_from_draw_to_report(world):
    folder, stages = world
    assert stages[:2] == ["draw@scenes", "prepare"]
    pretraining = {"main": ["pretrain@listener", "pretrain@speaker"], "judge": ["pretrain@judge"]}
    assert set(stages[2:7]) == {f"features@{name}" for name in pretraining}.union(*pretraining.values())
    assert all(stages.index(f"features@{name}") < stages.index(s) for name, roles in pretraining.items() for s in roles)
    assert {f"{s}@{m}" for s in ("train", "adapt", "evaluate") for m in METHODS} <= set(stages)
    assert stages.index("sweep") < stages.index("cross") < stages.index("report")
    for name in ("report.html", "table.md", "tables.md", "curve.png", "curve.csv", "comparison.csv"):
        assert (folder / "data/report" / name).stat().st_size > 100
    assert "PSST-Multinomial" in (folder / "data/report/table.md").read_text()
    assert "**Surface quality of the captions, test split**" in (folder / "data/report/tables.md").read_text()


def test_an_evaluation_has_five_judges_and_names_missing_metrics(world):
    metrics = json.loads((world[0] / "data/evaluation/psst_multinomial/metrics.json").read_text())
    assert metrics["settings"] == {
        "lambda": 0.005, "rho": 0.25, "mix": "token", "feed": "distribution", "seed": 1,
    }  # fmt: skip
    for split in ("val", "test"):
        assert metrics[split]["images"] == 8
        assert set(metrics[split]["language"]) == {"BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "CIDEr"}
        assert list(metrics[split]["judges"]) == ["own", "adapted", "pretrained", "symbolic", "judge"]
        for found in metrics[split]["judges"].values():
            assert set(found) == {"text_to_image", "image_to_text", "galleries", "human"}
            for recall in (found["text_to_image"], found["human"]["image_to_text"]):
                assert 0 <= recall["R@1"] <= recall["R@5"] <= 100
        assert 0 <= metrics[split]["faithfulness"].get("precision", 0.0) <= 1  # absent where captions have no claim
        assert metrics[split]["human_faithfulness"]["precision"] == 1
        assert metrics[split]["diversity"]["unknown"] == 0
        assert 0 <= metrics[split]["chair"]["CHAIR_s"] <= 1
        assert 0 < metrics[split]["human_reader"]["content_words"] < 1
    assert "get_stanford_models" in metrics["not_computed"]["SPICE"]
    assert "decode=beam:2" in metrics["signature"]
    assert "judges=own+adapted+pretrained+symbolic+judge" in metrics["signature"]
    captions = pq.read_table(world[0] / "data/evaluation/psst_multinomial/captions.parquet").to_pydict()
    assert captions["split"] == ["val"] * 8 + ["test"] * 8
    assert all(1 <= rank <= 8 for name in ("own", "pretrained", "judge") for rank in captions[f"rank_{name}"])


def test_captions_without_training_are_measured_beside_the_pretrained_speaker_and_shown(world):
    metrics = {name: json.loads((world[0] / f"data/evaluation/{name}/metrics.json").read_text()) for name in METHODS}
    assert "baselines" not in metrics["luo"]["test"]
    found = metrics["mle"]["test"]["baselines"]
    assert list(found) == ["template", "oracle", "random"]
    assert found["oracle"]["faithfulness"]["precision"] == 1
    assert found["oracle"]["judges"]["symbolic"]["text_to_image"]["R@1"] > 50
    table = (world[0] / "data/report/table.md").read_text()
    assert all(f"\n| {name} " in table for name in ("human", *found))


def test_an_unchanged_repository_runs_nothing(world):
    assert list_rerun_stages(succeed(world[0], "dvc", "repro")) == []
    assert "up to date" in succeed(world[0], "dvc", "status")


def test_a_changed_rho_makes_dependent_stages_stale(folder):
    set_parameter(folder, "methods", "psst_multinomial", "rho", to=0.75)
    status = json.loads(succeed(folder, "dvc", "status", "--json"))
    assert set(status) - {"validate"} == {
        "train@psst_multinomial",
        "evaluate@psst_multinomial",
        "sweep",
        "cross",
        "report",
    }


@pytest.mark.slow
def test_a_changed_rho_runs_dependent_stages_only(folder):
    cells = {p: p.stat().st_mtime_ns for p in (folder / "data/cells").rglob("metrics.json")}
    assert len(cells) == 6, "two cells, each with a training, an adaptation and an evaluation"
    set_parameter(folder, "methods", "psst_multinomial", "rho", to=0.75)
    stages = list_rerun_stages(succeed(folder, "dvc", "repro"))
    assert stages == [
        *(f"{stage}@psst_multinomial" for stage in ("train", "adapt", "evaluate")), "sweep", "cross", "report",
    ]  # fmt: skip
    for path, first_time in cells.items():
        again = path.stat().st_mtime_ns != first_time
        assert again == ("psst_multinomial" in str(path)), f"{path} ran {'again' if again else 'no second time'}"
    output = succeed(folder, "dvc", "params", "diff")
    assert "methods.psst_multinomial.rho" in output


@pytest.mark.slow
def test_one_more_lambda_runs_the_new_cell_and_a_cell_equal_to_the_methods_run_reuses_it(folder):
    cells = {p: p.stat().st_mtime_ns for p in (folder / "data/cells").rglob("metrics.json")}
    set_parameter(folder, "sweep", "grid", "luo", "lambda", to=[0.5, 0.7, 0.9])
    assert list_rerun_stages(succeed(folder, "dvc", "repro")) == ["sweep", "cross", "report"]
    assert {p: p.stat().st_mtime_ns for p in cells} == cells
    results = json.loads((folder / "data/sweep/cells.json").read_text())
    assert sorted((cell["method"], cell["settings"]["lambda"]) for cell in results) == [
        ("luo", 0.5), ("luo", 0.7), ("luo", 0.9), ("psst_multinomial", 0.002),
    ]  # fmt: skip
    cell = folder / "data/cells/luo/lambda=0.9_seed=1"
    for stage, method_folder, cell_folder in (
        ("train", "models/luo", "."),
        ("adapt", "models/luo/adapted", "adapted"),
        ("evaluate", "evaluation/luo", "evaluation"),
    ):
        assert f"done before, in data/{method_folder}" in (cell / f"{stage}.log").read_text()
        assert compute_digests(folder / "data" / method_folder).items() <= compute_digests(cell / cell_folder).items()
    assert "done before" not in (folder / "data/cells/luo/lambda=0.7_seed=1/train.log").read_text()


def find_stale_stages() -> set[str]:
    """Return the outdated stages of the repository in the working folder."""
    with Repo() as repo:
        return set(repo.status())


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        ("pipeline/methods/luo.py", {"train@luo", "sweep"}),
        slow("pipeline/methods/psst.py", {"train@psst_multinomial", "sweep"}),
        slow("pipeline/methods/likelihood.py", {"train@mle"}),  # no cell of the grid has this method
        slow("pipeline/channels/straight_through.py", {f"train@{method}" for method in METHODS} | {"sweep"}),
        slow("pipeline/report/tables.py", {"report"}),
        slow("pipeline/methods/mine.py", set()),
    ],
)
def test_an_edit_makes_the_importing_stages_stale(world, edited, expected, monkeypatch):
    """Only stages whose own dependencies changed are stale; DVC runs later stages where outputs change."""
    monkeypatch.chdir(world[0])
    path = Path(edited)
    before = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text((before or "") + "# another line\n", encoding="utf-8")
    try:
        assert find_stale_stages() == {"validate"}
        succeed(world[0], sys.executable, "-m", "stages.validate")
        assert find_stale_stages() - {"validate"} == expected
    finally:
        path.unlink() if before is None else path.write_text(before, encoding="utf-8")
        succeed(world[0], sys.executable, "-m", "stages.validate")


def test_the_summary_is_of_the_test_split(world):
    evaluated = world[0] / "data/evaluation/luo"
    metrics, summary = (json.loads((evaluated / f"{name}.json").read_text()) for name in ("metrics", "summary"))
    assert summary == select_summary_metrics(metrics["test"]) != select_summary_metrics(metrics["val"])


@pytest.mark.slow
@pytest.mark.parametrize("key", [("seed",), ("pretrain", "judge", "seed")])
def test_a_judge_is_pretrained_with_its_own_seed_and_the_global_one(folder, key):
    weights = folder / "data/pretrained/judge/weights.safetensors"
    before = weights.read_bytes()
    set_parameter(folder, *key, to=77)
    succeed(folder, sys.executable, "-m", "stages.pretrain", "--role", "judge")
    assert weights.read_bytes() != before


def test_metrics_are_shown_and_compared(world):
    output = json.loads(succeed(world[0], "dvc", "metrics", "show", "--json"))[""]["data"]
    assert any(name.endswith("evaluation/luo/summary.json") for name in output)
    table = succeed(world[0], "dvc", "metrics", "show", "--md").splitlines()
    assert table[0].count("|") <= 13  # at most twelve columns
    assert "R@10 judge" in table[0]


def test_the_difference_after_one_changed_parameter_is_one_screen(folder, monkeypatch, capsys):
    commit_all(folder)  # dvc.lock, too
    set_parameter(folder, "methods", "psst_multinomial", "rho", to=0.75)
    # every number changes, as after a new training and evaluation
    summary = folder / "data/evaluation/psst_multinomial/summary.json"
    numbers = {name: value + 1 for name, value in json.loads(summary.read_text()).items()}
    summary.unlink()  # the file may share its bytes with the cache
    summary.write_text(json.dumps(numbers))
    monkeypatch.chdir(folder)
    assert dvc(["metrics", "diff"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert len(output) == 1 + len(numbers) <= 24  # lines of a terminal
    assert all(line.startswith("data/evaluation/psst_multinomial/summary.json") for line in output[1:])
    assert max(map(len, output)) <= 120


def test_dvcs_page_of_plots_has_curves_and_trainings_and_needs_no_network(folder, monkeypatch):
    write_local_settings(folder)
    monkeypatch.chdir(folder)
    assert dvc(["plots", "show"]) == 0
    page = Path("dvc_plots/index.html").read_text()
    assert not re.search(r"<script[^>]*src=", page)
    plots = [json.loads(plot) for plot in re.findall(r"var spec = (\{.*?\});\n", page.rpartition("<body>")[2])]
    # the plot of a file without lines, here of ρ, is empty
    titles = {plot["title"]["text"]: plot["data"]["values"] for plot in plots if plot}
    assert {row["method"] for row in titles["discriminability against CIDEr"]} >= {"psst_multinomial", "luo"}
    trained = titles["CIDEr on validation while training"]
    assert {row["method"] for row in trained} == set(METHODS)
    assert all(float(row["val/cider"]) >= 0 for row in trained)


def test_the_report_has_each_methods_budget_and_learning_curves(world):
    """18 training images are two batches. Luo draws two captions per image, sampled and greedy; PSST draws three."""
    report = world[0] / "data/report"
    rows = {row["method"]: row for row in csv.DictReader((report / "budget.csv").read_text().splitlines())}
    assert {method: (float(row["steps"]), float(row["captions drawn"])) for method, row in rows.items()} == {
        "mle": (2, 0), "psst_multinomial": (2, 54), "luo": (2, 36),
    }  # fmt: skip
    assert all(float(row["processor seconds"]) > 0 for row in rows.values())
    assert "**Budget**" in (report / "tables.md").read_text()
    assert (report / "learning.png").stat().st_size > 100
    trained = json.loads((world[0] / "data/models/luo/metrics.json").read_text())
    assert (trained["step"], trained["captions_drawn"]) == (2, 36)
    assert 0 <= trained["val/hard_recall@1"] <= 100


def test_mlflow_has_a_run_for_every_stage_and_cell(world):
    from mlflow.tracking import MlflowClient

    folder, stages = world
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiments = [e.experiment_id for e in client.search_experiments()]
    runs = {run.info.run_name: run for run in client.search_runs(experiments, max_results=100)}
    # without a retriever, the stage `retriever` only writes a note
    assert set(stages) - {"retriever"} <= set(runs), sorted(runs)
    assert all(run.info.status == "FINISHED" for run in runs.values())
    children = [r for r in runs.values() if r.data.tags.get("mlflow.parentRunId") == runs["sweep"].info.run_id]
    assert len(children) == 6, "two cells, each with a training, an adaptation and an evaluation"
    parents = {r.data.tags["mlflow.parentRunId"] for name, r in runs.items() if name in stages}
    assert parents == {runs["scenes, changed, start 1"].info.run_id}
    train = runs["train@psst_multinomial"]
    assert train.data.params["methods.psst_multinomial.rho"] == "0.25"
    evaluated = runs["evaluate@psst_multinomial"]
    for run in (train, evaluated):
        assert {name: run.data.params[name] for name in ("method", "rho")} == {
            "method": "psst_multinomial",
            "rho": "0.25",
        }
        assert "lambda" in run.data.params
    summary_names = {name for name in evaluated.data.metrics if "/" not in name}
    assert {"CIDEr", "R_at_1 hard own", "R_at_1 hard judge"} <= summary_names
    assert len(summary_names) <= 12
    assert [m.step for m in client.get_metric_history(train.info.run_id, "discriminability/loss")] == [2]
    assert train.data.metrics["captions_drawn"] == 54
    assert train.data.metrics["processor_seconds"] > 0
    assert len(train.data.tags["mlflow.source.git.commit"]) == 40
    assert any(name.startswith("input.") for name in train.data.tags)
    assert any(name.startswith("output.") for name in train.data.tags)
    artifacts = {a.path for a in client.list_artifacts(train.info.run_id, "outputs")}
    assert "outputs/weights.safetensors" in artifacts
    assert not list((folder / "mlflow-spool").glob("*/")), "no record may wait to be sent"


@pytest.mark.slow
def test_make_results_restores_missing_outputs_and_names_all_tables(world, tmp_path):
    folder = Path(shutil.copytree(world[0], tmp_path / "world", symlinks=True))
    removed = [folder / "data" / name for name in ("models", "evaluation", "report")]
    for path in removed:
        shutil.rmtree(path)
    printed = succeed(folder, "make", "-f", str(ROOT / "Makefile"), "-o", ".venv/.installed", "PROFILE=", "results")
    assert "all tables: data/report/tables.md" in printed
    assert (folder / "data/report/report.html").exists()
    assert all(any(path.iterdir()) for path in removed)


STAGES = [
    ("draw", "scenes"), ("prepare", None), slow("features", "judge"), ("pretrain", "listener"), ("pretrain", "speaker"),
    ("train", "psst_multinomial"), ("adapt", "luo"), slow("evaluate", "luo"), ("cross", None), slow("report", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "instance"), STAGES)
def test_a_stage_reads_all_that_dvc_lists_for_it(name, instance, world, tmp_path, monkeypatch):
    """A key that is listed but never read would rerun a stage needlessly. A stage cannot read other keys.

    A listed section counts as read if one of its options is read, because some options have an effect only with others.
    """
    import importlib

    monkeypatch.chdir(world[0])
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    flag = [] if instance is None else [f"--{stage_module.INSTANCE[name]}", instance]
    views = []

    def record_params(stage: stage_module.Stage) -> None:
        views.append(stage.params)
        importlib.import_module(f"stages.{name}").run(stage)

    assert stage_module.main(name, record_params, [*flag, "--out", str(tmp_path / "out")]) == 0
    read_keys = [f"{key}." for key in views[0].read]
    assert not [listed for listed in views[0].listed if not any(key.startswith(f"{listed}.") for key in read_keys)]


def compute_digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.glob("*")) if p.is_file()}


def read_step(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_bits(world, tmp_path):
    """SIGKILL ends the training after the first checkpoint and twice later; the resumed run gives the same files."""
    command = [sys.executable, "-m", "stages.train", "--method", "psst_multinomial"]
    command += ["--set", "train.optimisation.epochs=40"]
    settings = {"SAYWHICH_TRACKING": "off", "SAYWHICH_CHECKPOINT_SECONDS": "0"}
    succeed(world[0], *command, "--out", str(tmp_path / "whole"), **settings)
    killed = 0
    for kept_step, min_step in ((0, 1), (1, 30), (30, 60)):
        steps = []  # steps of the newest checkpoint; a run that began at step 0 would remove the later checkpoints
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **settings}
        with subprocess.Popen([*command, "--out", str(tmp_path / "killed")], cwd=world[0], env=environment) as process:
            while process.poll() is None:
                steps.append(max(map(read_step, (world[0] / "data/checkpoints").glob("*/step-*")), default=0))
                if steps[-1] >= min_step:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.005)
            killed += process.wait() == -signal.SIGKILL
        assert min(steps) >= kept_step
        assert not (tmp_path / "killed" / "weights.safetensors").exists()
    assert killed == 3
    succeed(world[0], *command, "--out", str(tmp_path / "killed"), **settings)
    assert compute_digests(tmp_path / "killed") == compute_digests(tmp_path / "whole")
    assert not list((world[0] / "data/checkpoints").glob("*/step-*")), "checkpoints of a finished run are removed"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "request_"), zip(ARGUMENTS, cycle((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))))
def test_a_stage_ended_at_a_random_instant_gives_the_same_files_when_repeated(world, tmp_path, name, request_):
    """The test is a fast sample of `make fault-injection`, with each stage in its own process."""
    assert list(interrupt(make_work(world[0], tmp_path, name), [request_], seed=1)) == [""]
    assert not list(tmp_path.glob(".*.part")), "the next run must remove the partial files of a killed process"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "evaluate", "cross"])
def test_a_stage_runs_for_a_user_without_a_home(world, tmp_path, name):
    """The user owns a copy of the repository, as in a container."""
    copy = tmp_path / "copy"
    shutil.copytree(world[0], copy, symlinks=True, ignore=shutil.ignore_patterns("mlflow*", ".dvc"))
    for path in [tmp_path, copy, *copy.rglob("*")]:
        os.chown(path, int(USER), int(USER), follow_symlinks=False)
    run_without_home(copy, "-m", f"stages.{name}", *ARGUMENTS[name], "--out", "out", code=copy, SAYWHICH_TRACKING="off")
    assert any((copy / "out").iterdir())


def test_the_reader_of_a_damaged_file_names_it(world, tmp_path):
    """Only bits of HDF5 that no reader uses may be damaged without an error."""
    for kind in list_stage_files(world[0], tmp_path):
        found = {outcome for _, outcome in try_damages(kind, 16)}
        assert {each for each in found if not each.endswith("features.h5: used silently, the same result")} == {""}


@pytest.mark.slow
def test_a_small_disk_that_is_full_or_read_only_is_reported_in_one_line(world, tmp_path):
    try:
        with mount_small_disk(tmp_path / "disk"):
            assert set(try_full_disk(world[0], tmp_path / "disk", "prepare", (0.5,))) == {""}
    except PermissionError as error:
        pytest.skip(str(error))


def test_a_mistake_is_reported_in_one_line_and_nothing_is_written(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(world[0])
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    wrong = ["--method", "luo", "--set", "methods.luo.lambda=1.5", "--out", str(tmp_path / "out")]
    assert stage_module.main("train", train.run, wrong) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "methods.luo.lambda = 1.5 is not allowed" in printed
    assert not (tmp_path / "out").exists()
    assert stage_module.main("evaluate", evaluate.run, ["--method", "luo", "--model", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "no such" in printed
