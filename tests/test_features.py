"""The features stage on a toy world: after a kill and damage, and in shards by the real Snakemake."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file
from stage_runs import run_stage
from whole_profiles import load_profile

from pipeline.errors import UserError
from pipeline.features.extractor import NetworkSettings
from pipeline.features.networks import TimmNetwork
from pipeline.runtime.torchvision_cpu import declare_operators
from pipeline.workflow import stage as stage_module
from stages.features import name_keys

ROOT = Path(__file__).parents[1]
SOURCES = ("pipeline", "stages", "profiles", "dvc.yaml", "features.smk")
FEATURES = {
    "network": "test_resnet", "weights": "weights.safetensors", "options": {}, "image_size": 32, "batch": 4,
    "mean": None, "std": None, "pca_dim": 8, "grid_size": None, "detector": None,
}  # fmt: skip

KILL_IN_FIFTH_BATCH = """
import os, signal, sys
import numpy as np
from pipeline.workflow.stage import main
from stages.features import run

written = []

def save_or_kill(file, **arrays):
    if len(written) == 4:  # in the middle of the fifth batch
        file.write(bytes(1000))
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    written.append(file)
    return save(file, **arrays)

save, np.savez = np.savez, save_or_kill
sys.exit(main("features", run, []))
"""


def make_environment():
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "SAYWHICH_TRACKING": "off"}


def run_python(folder, *arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=make_environment(), capture_output=True, text=True, check=False
    )


def run_in_process(name, *arguments):
    """Run a stage in this process, without another start of Python."""
    assert run_stage(name, *arguments) == 0


def read_contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Yield a repository with thirty prepared scenes; `unbroken` holds their features from an uninterrupted run."""
    for name in SOURCES:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tmp_path / name, **({"ignore": shutil.ignore_patterns("__pycache__")} if source.is_dir() else {}))
    params = load_profile("scenes")
    params["draw"]["scenes"] = {"images": 30, "size": 64, "val": 8, "test": 8}
    params["prepare"]["min_count"] = 2
    params["features"]["main"] = FEATURES
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    declare_operators()
    import timm

    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "weights.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the processes that are started here
    run_in_process("draw", "--dataset", "scenes")
    run_in_process("prepare")
    run_in_process("features", "--out", "unbroken")
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_killed_extraction_resumes_to_the_same_bytes(world):
    killed_run = run_python(world, "-c", KILL_IN_FIFTH_BATCH)
    assert killed_run.returncode == -signal.SIGKILL, killed_run.stderr[-2000:]
    assert not (world / "data/features/main").exists()
    (work,) = (world / "data/checkpoints/features").iterdir()
    contents = read_contents(work)
    assert len(contents) == 5, "expected four batches and a part of the fifth"
    damaged = work / "000000008.npz"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 4  # changes one bit of the third batch
    damaged.write_bytes(content)
    inodes = {path.name: path.stat().st_ino for path in work.glob("0*.npz")}
    shard_run = run_python(world, "-m", "stages.features", "--shard", "1/1")
    assert shard_run.returncode == 0, shard_run.stderr[-2000:]
    kept = [name for name, inode in inodes.items() if (work / name).stat().st_ino == inode]
    assert sorted(kept) == ["000000000.npz", "000000004.npz", "000000012.npz"]
    run_in_process("features")
    assert read_contents(world / "data/features/main") == read_contents(world / "unbroken")
    assert not list((world / "data/checkpoints/features").iterdir())


@pytest.mark.slow
def test_shards_by_snakemake_equal_one_process(world):
    command = ("-m", "snakemake", "-s", "features.smk", "--cores", "2", "--config", "shards=2")
    done = run_python(world, *command)
    assert done.returncode == 0, done.stderr[-3000:]
    assert read_contents(world / "data/features/main") == read_contents(world / "unbroken")
    assert not list((world / "data/checkpoints").glob("features/*"))
    assert "Nothing to be done" in (again := run_python(world, *command, "--dry-run")).stdout + again.stderr
    params = yaml.safe_load((world / "params.yaml").read_text())
    params["features"]["main"]["grid_size"] = 1
    (world / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    planned = run_python(world, *command, "--dry-run").stdout
    assert planned.count("rule shard:") == 2
    assert planned.count("rule join:") == 1


def test_an_error_about_a_key_names_the_set_of_features():
    declare_operators()
    with (
        pytest.raises(UserError, match=r"^features\.judge\.network: timm has no network 'resnet0'; name one of"),
        name_keys("judge"),
    ):
        TimmNetwork(NetworkSettings("resnet0", 64))


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/2/3"])
def test_an_invalid_shard_is_reported_in_one_line(shard, capsys):
    assert stage_module.main("features", pytest.fail, ["--params", str(ROOT / "params.yaml"), "--shard", shard]) == 2
    assert capsys.readouterr().err == f"--shard {shard}: must read K/N, the K-th of N parts, as in 1/8\n"
