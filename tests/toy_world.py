"""A toy world for tests of the real tools: a repository of 34 drawn scenes whose trainings take one epoch."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import preloaded_python
from whole_profiles import load_profile

ROOT = Path(__file__).parents[1]
UNFINISHED = shutil.ignore_patterns("*.pyc.*")  # bytecode that another process is writing
FILES = ("pipeline", "stages", "profiles", "docs/snakemake", "dvc.yaml", "Snakefile", ".dvc/config", ".dvcignore")


def make_toy_params() -> dict:
    """Return the scenes profile with small sizes, three methods and a grid of two cells."""
    params = load_profile("scenes")
    params["draw"]["scenes"] = {"images": 34, "size": 64, "val": 8, "test": 8}
    params["prepare"]["min_count"] = 2
    for name, width in (("main", 4), ("judge", 6)):
        params["features"][name]["detector"] |= {"epochs": 1, "width": width}
    params["features"]["judge"]["horizontal_flip"] = True
    sizes = {"word_dim": 8, "hidden_dim": 8}
    one_epoch = {"epochs": 1, "batch": 9, "validate_every": 1}
    for role in ("listener", "speaker", "judge"):
        params["pretrain"][role] |= sizes | {"optimisation": params["pretrain"][role]["optimisation"] | one_epoch}
    params["pretrain"]["speaker"]["attention_dim"] = 8
    params["train"]["optimisation"] |= one_epoch
    params["adapt"]["optimisation"] |= one_epoch
    params["methods"] = {
        "mle": {"from": "likelihood", "speaker": "speaker"},
        "psst_multinomial": {"from": "psst", "speaker": "speaker", "lambda": 0.005, "rho": 0.25},
        "luo": {"from": "luo", "speaker": "speaker", "lambda": 0.9},
    }
    params["evaluate"]["metrics"] = ["BLEU", "ROUGE-L", "CIDEr", "SPICE"]  # METEOR takes seconds to start
    params["sweep"]["seeds"] = [1]
    params["sweep"]["grid"] = {"psst_multinomial": {"lambda": [0.002]}, "luo": {"lambda": [0.5]}}
    params["report"]["images"] = 2
    return params


def run_command(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in `folder`; PATH begins with preloaded programs and this environment's programs."""
    python = preloaded_python.find_program("python")
    path = os.pathsep.join(
        dict.fromkeys((str(Path(python).parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    command = tuple(python if part == sys.executable else part for part in command)
    # A test of this process that used MLflow leaves the tracking address in the environment. Without bytecode, every
    # process of a repository would compile all modules. A make that runs the tests would pass its flags on.
    prefixes = ("MLFLOW_", "SAYWHICH_", "PYTHONDONTWRITEBYTECODE", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    settings = inherited | {"PATH": path, "OMP_NUM_THREADS": "1", "SAYWHICH_CORES": "2"} | environment
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False, timeout=3600)


def succeed(folder: Path, *command: str, **environment: str) -> str:
    """Run a command that must succeed, and return its output."""
    done = run_command(folder, *command, **environment)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def write_repository(folder: Path, params: dict) -> None:
    """Write a repository to `folder`, with `params` as its params.yaml, without running a stage."""
    for name in FILES:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=UNFINISHED)
        else:
            shutil.copy(source, target)
    (folder / "params.yaml").write_text(json.dumps(params))
    (folder / ".gitignore").write_text("/data\n/mlflow*\n/mlartifacts\n.snakemake\n__pycache__\n")
    succeed(folder, "git", "init", "-q")


def commit_all(folder: Path) -> None:
    """Commit all files of the repository at `folder`."""
    for command in (["add", "-A"], ["commit", "-qm", "toy"]):
        succeed(folder, "git", "-c", "user.name=t", "-c", "user.email=t@t", *command)


def make_world(folder: Path) -> str:
    """Write a repository to `folder`, and run all stages; return the output."""
    write_repository(folder, make_toy_params())
    commit_all(folder)
    return succeed(folder, sys.executable, "-m", "pipeline.workflow.repro")


def list_run_stages(output: str) -> list[str]:
    """Return the stages that a `dvc repro` or a `make repro` with this output ran, in order."""
    return re.findall(r"^(?:Running stage '|\[ *\d+/\d+\] )([\w@]+)", output, re.MULTILINE)


def compute_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below `folder` by its path, without half-written files."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".part")]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}
