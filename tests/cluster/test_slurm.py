"""The grid on a real Slurm: killed jobs resume from checkpoints and end with the digests of the run on one machine."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import yaml
from loopback import Loopback, Slurm, wait_until
from toy_grid import CELLS, EPOCHS, STEPS, compute_digests, copy_without_grid
from toy_world import ROOT, run_command, succeed

from pipeline.training.loop import LOG_EVERY

# The tests need no GPU, and Snakemake first checks jobs after one second. The profile has all other options.
GRID = ["snakemake", "--workflow-profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "1"]
GRID += ["--set-resources", *(f"{rule}:gpu=0" for rule in ("train", "adapt", "evaluate"))]
PARENT_RUN = "the grid on Slurm"  # the parent of the grid's runs in MLflow
TIMEOUT = 900.0  # seconds, enough for a busy machine


def find_job(slurm: Slurm, cell: str) -> tuple[str, str, str]:
    """Return id, state and node of the newest job that trains the cell, or empty strings."""
    comment = f"rule_train_wildcards_{cell.replace('/', '_')}"
    lines = slurm.run("squeue", "-h", "--states=all", "-o", "%A|%T|%N|%k", check=False).splitlines()
    found = [line.split("|") for line in lines if line.endswith(comment)]
    number, state, node, _ = max(found, key=lambda line: int(line[0]), default=["", "", "", ""])
    return number, state, node


def find_trainings(folder: Path) -> dict[str, psutil.Process]:
    """Return the processes that train cells of the repository at `folder`."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        arguments = process.info["cmdline"] or []
        with suppress(psutil.Error, ValueError):
            if "stages.train" in arguments and process.name().startswith("python") and process.cwd() == str(folder):
                found[arguments[arguments.index("--out") + 1].removeprefix("data/cells/")] = process
    return found


def stop_all_halfway(folder: Path) -> dict[str, psutil.Process]:
    """Stop each cell's process (SIGSTOP) once it has written a checkpoint; return the processes."""
    stopped: dict[str, psutil.Process] = {}

    def stop_new_trainings() -> bool:
        for cell, process in find_trainings(folder).items():
            if cell not in stopped:
                process.suspend()
                stopped[cell] = process
        return len(stopped) == len(CELLS)

    wait_until(stop_new_trainings, "three trainings at once", TIMEOUT)
    for number, process in enumerate(stopped.values()):
        process.resume()
        wait_until(
            lambda n=number: len({path.parent for path in find_checkpoints(folder)}) > n, "a checkpoint", TIMEOUT
        )
        process.suspend()
    return stopped


def find_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints that follow the first logged losses."""
    return [path for path in folder.glob("data/checkpoints/*/step-*") if int(path.name.split("-")[1]) > LOG_EVERY]


def resume(process: psutil.Process) -> None:
    """Resume a stopped process, so that it receives its pending signals."""
    with suppress(psutil.NoSuchProcess):
        process.resume()


def lose_node(slurm: Slurm, node: str, number: str, folder: Path) -> None:
    """Simulate a failing machine: drain it, end it with all of its processes, and start it empty."""
    slurm.run("scontrol", "update", f"NodeName={node}", "State=drain", "Reason=test")
    slurm.services[f"slurmd {node}"].stop()
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.Error):
            is_of_job = process.environ().get("SLURM_JOB_ID") == number and process.cwd() == str(folder)
            if is_of_job or " ".join(process.info["cmdline"] or []).startswith(f"slurmstepd: [{number}."):
                process.kill()
    slurm.run("scontrol", "update", f"NodeName={node}", "State=down", "Reason=test")
    slurm.services[f"slurmd {node}"].start()
    slurm.run("scontrol", "update", f"NodeName={node}", "State=resume")


@contextmanager
def start_grid(folder: Path, settings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run Snakemake with the profile for Slurm within the block; its output goes to grid.log."""
    with open(folder / "grid.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(GRID, cwd=folder, env=os.environ | settings, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()  # after SIGTERM it would wait for its jobs
        process.wait()


@pytest.fixture(scope="module")
def disturbed_grid(
    services: Loopback, world: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """Run a grid on Slurm and stop all trainings half way; return its folder and the stopped cells.

    One job is cancelled. The node of another job is drained, lost, and resumed. The third job reaches its time limit:
    it gets SIGTERM, and seconds later SIGKILL. The MLflow server is stopped meanwhile.
    """
    folder, slurm = copy_without_grid(world, tmp_path_factory.mktemp("grid") / "world"), services.slurm
    settings = services.environment | {"SAYWHICH_CHECKPOINT_SECONDS": "0.05", "SAYWHICH_PARENT_RUN": PARENT_RUN}
    with start_grid(folder, settings) as grid:
        stopped = stop_all_halfway(folder)
        services.tracker.stop()
        nodes = {cell: find_job(slurm, cell)[2] for cell in stopped}
        lost = next(cell for cell, node in nodes.items() if list(nodes.values()).count(node) == 1)
        cancelled, late = (cell for cell in stopped if cell != lost)
        slurm.run("scontrol", "update", f"JobId={find_job(slurm, late)[0]}", "TimeLimit=1")
        slurm.run("scancel", find_job(slurm, cancelled)[0])
        resume(stopped[cancelled])
        lose_node(slurm, nodes[lost], find_job(slurm, lost)[0], folder)
        number = find_job(slurm, late)[0]
        ends = ("COMPLETING", "TIMEOUT")
        wait_until(
            lambda: slurm.run("squeue", "-h", "--states=all", "-j", number, "-o", "%T") in ends,
            "the time limit of the job",
            TIMEOUT,
        )
        resume(stopped[late])
        services.start_tracker()
        wait_until(lambda: grid.poll() is not None, "the end of the grid", 2 * TIMEOUT)
        assert grid.poll() == 0, (folder / "grid.log").read_text(encoding="utf-8")[-4000:]
    return folder, {"cancelled": cancelled, "node lost": lost, "time is up": late}


def test_stopped_jobs_end_with_the_digests_of_one_machine(disturbed_grid, world):
    folder, stopped = disturbed_grid
    assert set(stopped.values()) == set(CELLS)
    assert compute_digests(folder) == compute_digests(world)
    assert not list(folder.glob("data/checkpoints/*/step-*"))


def test_dvc_has_nothing_to_do_after_the_grid_ran_on_slurm(disturbed_grid, services):
    assert "up to date" in succeed(disturbed_grid[0], "dvc", "status", **services.environment)


def test_mlflow_has_all_records_after_its_server_was_away(disturbed_grid, services):
    from mlflow.tracking import MlflowClient

    folder, _ = disturbed_grid
    succeed(folder, sys.executable, "-m", "pipeline.tracking", "sync", **services.environment)
    spool = folder / "mlflow-spool"
    wait_until(lambda: not list(spool.glob("*/records.jsonl")), "the records to be sent", TIMEOUT)
    client = MlflowClient(services.environment["MLFLOW_TRACKING_URI"])
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.mlflow.parentRunId = '{PARENT_RUN}'", max_results=100)
    for cell in CELLS:
        method, name = cell.split("/")
        ends = {
            stage: sorted(run.info.status for run in runs if run.info.run_name == f"{stage}@{method} {name}")
            for stage in ("train", "adapt", "evaluate")
        }
        assert ends == {"train": ["FINISHED", "KILLED"], "adapt": ["FINISHED"], "evaluate": ["FINISHED"]}, cell
        whole, killed = sorted(
            (run for run in runs if run.info.run_name == f"train@{method} {name}"),
            key=lambda run: run.info.status,
        )
        history = client.get_metric_history(whole.info.run_id, "learning_rate")
        assert min(metric.step for metric in history) > LOG_EVERY, "the training continued from a checkpoint"
        assert max(metric.step for metric in history) == STEPS
        artifacts = {artifact.path for artifact in client.list_artifacts(whole.info.run_id, "outputs")}
        assert "outputs/weights.safetensors" in artifacts
        assert killed.data.params["train.optimisation.epochs"] == str(EPOCHS)


def test_a_training_on_two_nodes_is_that_of_one_process(services, world, tmp_path):
    import torch
    from safetensors.torch import load_file

    settings = services.environment | {"SAYWHICH_TRACKING": "off"}
    arguments = ["--method", "luo", "--set", "train.optimisation.epochs=3"]
    arguments += ["--set", "train.optimisation.validate_every=3", "--set", "train.optimisation.batch=6"]
    succeed(world, sys.executable, "-m", "stages.train", *arguments, "--out", str(tmp_path / "one"), **settings)
    batch = ["sbatch", "--wait", "--nodes=2", "--time=15", f"--output={tmp_path}/two.log"]
    script = [*batch, "profiles/slurm/several_nodes.sh", "train", *arguments, "--out", str(tmp_path / "two")]
    done = run_command(world, *script, **settings, LOGLEVEL="INFO")
    output = (tmp_path / "two.log").read_text(encoding="utf-8")
    assert done.returncode == 0, output[-3000:]
    assert "2 nodes: n1 n2" in output
    assert "global_world_sizes=[2]" in output or "global_world_sizes=[2, 2]" in output
    one, two = (load_file(tmp_path / name / "weights.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], atol=1e-5, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}")
    metrics = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("one", "two")]
    assert metrics[0] == pytest.approx(metrics[1], abs=1e-3)


def test_guide_and_profile_name_options_of_the_executor():
    plugin = pytest.importorskip("snakemake_executor_plugin_slurm")
    option_names = {f"slurm-{option.name.replace('_', '-')}" for option in fields(plugin.ExecutorSettings)}
    mentioned = {
        option
        for name in ("profiles/slurm/README.md", "profiles/slurm/config.v9+.yaml", "docs/cluster.md")
        for option in re.findall(r"(?<![\w-])(slurm-[a-z-]+):", (ROOT / name).read_text(encoding="utf-8"))
    }
    assert {"slurm-status-command", "slurm-reservation", "slurm-array-jobs"} <= mentioned
    assert mentioned <= option_names
    resources = yaml.safe_load((ROOT / "profiles/slurm/config.v9+.yaml").read_text())["set-resources"]["train"]
    job = SimpleNamespace(resources=resources | {"gpu_model": "a100"})
    assert plugin.utils.set_gres_string(job).strip() == "--gpus=a100:1"
