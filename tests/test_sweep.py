"""The grid run by the real Snakemake, with dummy stages that record their runs."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from dummy_stages import (
    LUO,
    PARAMS,
    PSST,
    ROOT,
    SMALL,
    STAGES,
    list_jobs,
    pop_run_stages,
    write_params,
    write_workspace,
)
from preloaded_python import find_program

from pipeline.workflow import estimate, grid_cells


def run_snakemake(folder: Path, *options: str, cores: int = 2) -> subprocess.CompletedProcess:
    command = [find_program("snakemake"), "--cores", str(cores), *options]
    return subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def plan_jobs(folder: Path) -> list[str]:
    """Return the train, adapt and evaluate jobs of a dry run, each as `STAGE METHOD/CELL`."""
    plan = run_snakemake(folder, "--dry-run").stdout
    jobs = re.findall(
        r"^rule (train|adapt|evaluate):$.*?wildcards: method=(\w+), cell=(\S+)$", plan, re.MULTILINE | re.DOTALL
    )
    return sorted(f"{stage} {method}/{cell}" for stage, method, cell in jobs)


def find_incomplete_cells(folder: Path) -> set[str]:
    """Return the folders of cells with outputs that Snakemake has marked as incomplete.

    Snakemake sets the markers when a job starts and removes them when it ends; a killed Snakemake leaves them.
    """
    markers = (folder / ".snakemake/incomplete").iterdir()
    outputs = [base64.b64decode(marker.name).decode() for marker in markers]
    return {"/".join(output.split("/")[:4]) for output in outputs if output.startswith("data/cells/")}


@pytest.fixture(scope="module")
def complete_grid(tmp_path_factory) -> Path:
    """Return a workspace whose grid is complete; tests must not change it."""
    folder = tmp_path_factory.mktemp("grid")
    write_workspace(folder)
    result = run_snakemake(folder)
    assert result.returncode == 0, result.stdout
    assert pop_run_stages(folder) == list_jobs(PSST, SMALL, LUO)
    return folder


@pytest.fixture
def folder(complete_grid, tmp_path) -> Path:
    """Return a copy of the complete workspace, which the test may change."""
    return Path(shutil.copytree(complete_grid, tmp_path / "copy"))


def test_results_are_gathered(complete_grid):
    cells = json.loads((complete_grid / "data/sweep/cells.json").read_text())
    assert [(cell["method"], cell["cell"]) for cell in cells] == [tuple(c.split("/")) for c in (PSST, SMALL, LUO)]
    assert [cell["settings"] for cell in cells] == [
        {"lambda": 0.1, "seed": 1, "rho": 0.25},
        {"lambda": 1e-05, "seed": 1, "rho": 0.25},
        {"lambda": 0.9, "seed": 1},
    ]
    assert cells[0]["val"] == {"images": 2}
    epochs = [json.loads(line) for line in (complete_grid / "data/sweep/history.jsonl").read_text().splitlines()]
    assert [(epoch["method"], epoch["epoch"]) for epoch in epochs] == [
        (method, n) for method in ("psst", "psst", "luo") for n in (1, 2)
    ]
    assert [epoch["cell"] for epoch in epochs[::2]] == [cell["cell"] for cell in cells]
    captions = pq.read_table(complete_grid / "data/sweep/captions.parquet").to_pylist()
    assert [row["lambda"] for row in captions] == [0.1, 0.1, 1e-05, 1e-05, 0.9, 0.9]
    last = captions[-1]
    assert last.pop("caption").startswith("--method luo --set methods.luo.lambda=0.9 --seed 1 --out data/cells/luo/")
    assert last == {"method": "luo", "cell": LUO[4:], "lambda": 0.9, "rho": None, "seed": 1, "split": "val", "image": 4}


def test_all_cells_share_one_meteor_server_that_ends_with_the_grid(complete_grid):
    addresses = (complete_grid / "meteor.txt").read_text().splitlines()
    assert len(addresses) == 3
    assert len(set(addresses)) == 1
    for _ in range(1200):
        if not Path(addresses[0]).parent.exists():
            return
        time.sleep(0.05)
    raise AssertionError("expected METEOR's server to end with the grid; its folder exists after 60 s")


def test_new_modification_times_alone_rerun_nothing(folder):
    for path in (folder / "data").rglob("*"):
        os.utime(path)
    os.utime(folder / "code.py")
    result = run_snakemake(folder)
    assert "Nothing to be done" in result.stdout
    assert pop_run_stages(folder) == []


def test_a_copy_is_up_to_date_for_any_order_of_modification_times(complete_grid, tmp_path):
    """`cp -r` sets a file's modification time to the time of copying; here outputs are older than their inputs."""
    copy = Path(shutil.copytree(complete_grid, tmp_path / "copy"))
    files = sorted((path for path in copy.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
    for n, path in enumerate(reversed(files)):
        os.utime(path, (1.7e9 + n, 1.7e9 + n))
    assert "Nothing to be done" in run_snakemake(copy, "--dry-run").stdout


GRID = PARAMS["sweep"]["grid"]
EVALUATIONS = [f"evaluate {cell}" for cell in (LUO, PSST, SMALL)]


@pytest.mark.slow
def test_one_more_value_runs_the_new_cell_only(folder):
    write_params(
        folder,
        sweep={"seeds": [1], "grid": {**GRID, "luo": {"lambda": [0.9, 0.8]}}},
        seed=6,  # the grid sets the seed of each cell
        methods={**PARAMS["methods"], "luo": {"from": "luo", "lambda": 0.6}, "mle": {"rho": 1}},  # the grid sets λ, too
    )
    result = run_snakemake(folder)
    assert result.returncode == 0, result.stdout
    assert pop_run_stages(folder) == list_jobs("luo/lambda=0.8_seed=1")
    assert len(json.loads((folder / "data/sweep/cells.json").read_text())) == 4


@pytest.mark.slow
def test_a_changed_block_runs_the_cells_of_its_method(folder):
    write_params(folder, methods={**PARAMS["methods"], "luo": {"from": "luo", "lambda": 0.5, "baseline": "none"}})
    result = run_snakemake(folder)
    assert result.returncode == 0, result.stdout
    assert pop_run_stages(folder) == list_jobs(LUO)


@pytest.mark.slow
def test_changed_stages_rerun_the_cells_that_depend_on_them(folder):
    write_params(folder, train={"epochs": 4})
    assert plan_jobs(folder) == list_jobs(PSST, SMALL, LUO)
    write_params(folder, adapt={"epochs": 3})
    assert plan_jobs(folder) == sorted([*EVALUATIONS, *(f"adapt {cell}" for cell in (LUO, PSST, SMALL))])
    write_params(folder, evaluate={"beam": 3})
    assert plan_jobs(folder) == EVALUATIONS
    write_params(folder)
    assert plan_jobs(folder) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("data/prepared/captions", list_jobs(PSST, SMALL, LUO)),
        ("code.py", list_jobs(PSST, SMALL, LUO)),
        ("methods/luo.py", list_jobs(LUO)),
        ("methods/new.py", []),
        ("data/models/judge.bin", EVALUATIONS),
    ],
)
def test_changed_inputs_rerun_cells_even_with_old_modification_times(folder, path, expected):
    (folder / path).write_text("new")
    os.utime(folder / path, (1, 1))
    assert plan_jobs(folder) == expected


@pytest.mark.slow
def test_a_cell_removed_from_the_grid_is_removed_from_the_results(folder):
    write_params(folder, sweep={"seeds": [1], "grid": {"luo": GRID["luo"]}})
    assert run_snakemake(folder).returncode == 0
    assert pop_run_stages(folder) == []
    assert [cell["method"] for cell in json.loads((folder / "data/sweep/cells.json").read_text())] == ["luo"]


@pytest.mark.slow
def test_a_running_grid_is_locked_and_a_killed_grid_resumes(folder):
    shutil.rmtree(folder / "data/cells")
    shutil.rmtree(folder / "data/sweep")
    (folder / "slow").write_text(LUO[4:])
    command = [sys.executable, "-m", "snakemake", "--cores", "2"]
    first = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        captions = [folder / "data/cells" / cell / "evaluation/captions.parquet" for cell in (PSST, SMALL)]
        while not all(path.exists() for path in captions) or find_incomplete_cells(folder) != {f"data/cells/{LUO}"}:
            assert first.poll() is None
            time.sleep(0.1)
        second = run_snakemake(folder)
        assert second.returncode != 0
        assert "cannot be locked" in second.stdout
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert list((folder / ".snakemake/locks").iterdir())
    pop_run_stages(folder)
    (folder / "slow").unlink()
    third = run_snakemake(folder)
    assert third.returncode == 0, third.stdout
    assert pop_run_stages(folder) == list_jobs(LUO)
    assert len(json.loads((folder / "data/sweep/cells.json").read_text())) == 3


def prepare_sweep_stage(folder: Path, **sweep) -> dict:
    """Write the files of the stage sweep with the project's methods; return the arguments of `subprocess`."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    (folder / "params.yaml").write_text(json.dumps({**params, "sweep": sweep}))
    workflow = yaml.safe_load(STAGES)
    workflow["stages"]["sweep"] = {"cmd": "python -m stages.sweep", "params": ["sweep"]}
    (folder / "dvc.yaml").write_text(yaml.safe_dump(workflow))
    environment = os.environ | {"SAYWHICH_TRACKING": "off", "SAYWHICH_CORES": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "stages/sweep.py")]
    return {"args": command, "cwd": folder, "env": environment, "text": True, "stderr": subprocess.PIPE}


@pytest.mark.slow
def test_a_grid_waits_for_the_processes_of_a_killed_grid(folder):
    """The Snakemake of a killed stage keeps running and keeps its locks."""
    cell = "luo/lambda=0.7_seed=1"
    (folder / "slow").write_text(cell[4:])
    command = prepare_sweep_stage(folder, seeds=[1], grid={"luo": {"lambda": [0.7]}})
    with subprocess.Popen(**command) as first:
        while find_incomplete_cells(folder) != {f"data/cells/{cell}"}:
            assert first.poll() is None, first.stderr.read()
            time.sleep(0.05)
        first.kill()
        with subprocess.Popen(**command) as second:
            lines = [second.stderr.readline()]
            while lines[-1] and "sweep: another Snakemake is running this grid; waiting" not in lines[-1]:
                lines.append(second.stderr.readline())
            assert lines[-1], lines
            (folder / "slow").unlink()
            messages = second.stderr.read()
    assert second.returncode == 0, messages
    assert pop_run_stages(folder) == list_jobs(cell)  # only the first Snakemake ran jobs


def test_only_the_snakemake_of_the_grid_frees_locks(folder):
    """The Snakemake of a job (`--mode subprocess`) may outlive the grid's Snakemake.

    The Snakemake of a job must not remove the locks of the next grid.
    """
    lock = folder / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    assert run_snakemake(folder, "--dry-run", "--nolock", "--mode", "subprocess").returncode == 0
    assert lock.exists()
    assert run_snakemake(folder, "--dry-run").returncode == 0
    assert not lock.exists()


@pytest.mark.slow
def test_a_failing_cell_shows_its_log_and_the_stage_fails_in_one_line(folder):
    (folder / "broken").touch()
    shutil.rmtree(folder / "data/cells/luo")
    command = prepare_sweep_stage(folder, seeds=[1], grid={"luo": {"lambda": [0.7]}})
    result = subprocess.run(**command)
    assert result.returncode == 2
    assert "the disk is full" in result.stderr
    assert "a cell failed" in result.stderr.splitlines()[-1]
    (folder / "broken").unlink()
    result = subprocess.run(**command)
    assert result.returncode == 0, result.stderr
    assert pop_run_stages(folder) == sorted(["train luo/lambda=0.7_seed=1", *list_jobs("luo/lambda=0.7_seed=1")])


def test_snakemakes_report_has_cells_and_descriptions(folder):
    result = run_snakemake(folder, "--report", "report.html")
    assert result.returncode == 0, result.stdout
    page = (folder / "report.html").read_text()
    assert LUO[4:] in page
    assert "independent judge" in page


def test_the_conda_environment_lists_the_dependencies_of_the_workflow():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "profiles/environment.yaml").read_text())
    extras = [*project["optional-dependencies"]["vision"], *project["optional-dependencies"]["pipeline"]]
    expected = [*project["dependencies"], *(name for name in extras if not name.startswith("saywhich["))]
    assert environment["dependencies"][-1]["pip"] == expected


def test_invalid_inputs_are_reported_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path, sweep={"seeds": [1], "grid": {"lou": {}}})
    assert grid_cells.main(["gather", "out"]) == 2
    assert "sweep.grid.lou: no such method" in capsys.readouterr().err
    write_params(tmp_path)
    monkeypatch.setenv("SAYWHICH_CORES", "two")
    assert estimate.main([]) == 2
    assert capsys.readouterr().err == "SAYWHICH_CORES = two: give a whole number of cores, 1 or more\n"
    assert grid_cells.main(["tell"]) == 2
    assert capsys.readouterr().err == "usage: python -m pipeline.workflow.grid_cells gather FOLDER\n"
