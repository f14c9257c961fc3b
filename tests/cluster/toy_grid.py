"""A toy world with a grid of three cells."""

import hashlib
import shutil
from pathlib import Path

from toy_world import make_toy_params

EPOCHS, STEPS = 100, 200  # epochs and steps of a cell's training
CELLS = tuple(f"luo/lambda={value}_seed=1" for value in (0.5, 0.6, 0.7))


def make_params() -> dict:
    """Return the toy world's parameters, with trainings of cells that are long enough to be stopped half way."""
    toy = make_toy_params()
    toy["methods"] = {name: toy["methods"][name] for name in ("mle", "luo")}
    toy["train"]["optimisation"] |= {"epochs": EPOCHS, "validate_every": EPOCHS}
    toy["methods"]["mle"] |= {"train": {"optimisation": {"epochs": 1, "validate_every": 1}}}
    toy["methods"]["luo"]["lambda"] = 0.5  # as in one cell, so that only one of the two equal trainings runs
    toy["sweep"]["grid"] = {"luo": {"lambda": [0.5, 0.6, 0.7]}}
    return toy


def copy_without_grid(world: Path, copy: Path) -> Path:
    """Return a copy of the world whose grid has not run."""
    shutil.copytree(world, copy, symlinks=True)
    for name in ("data/cells", "data/sweep", "data/checkpoints", ".snakemake"):
        shutil.rmtree(copy / name, ignore_errors=True)
    return copy


def compute_digests(world: Path) -> dict[str, str]:
    """Return the SHA-256 of the cells' weights, histories and captions, and of the gathered results."""
    cells = world / "data/cells"
    files = [*cells.rglob("weights.safetensors"), *cells.rglob("history.jsonl"), *cells.rglob("captions.parquet")]
    files += (world / "data/sweep").iterdir()
    return {str(path.relative_to(world)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}
