"""A workspace whose grid has three cells, and whose dummy stages record that they ran and write outputs."""

import json
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
PSST, SMALL, LUO = "psst/lambda=0.1_rho=0.25_seed=1", "psst/lambda=1e-05_rho=0.25_seed=1", "luo/lambda=0.9_seed=1"

STAGES = """
stages:
  train:
    foreach: ${methods}
    do:
      cmd: python -m stages.train --method ${key}
      params: [seed, train, "methods.${key}"]
      deps: [data/prepared, data/models/speaker.bin, code.py, "methods/${item.from}.py"]
      outs: ["data/models/${key}/weights.safetensors"]
  adapt:
    foreach: ${methods}
    do:
      cmd: python -m stages.adapt --method ${key}
      params: [seed, adapt]
      deps: [data/prepared, data/models/speaker.bin, "data/models/${key}/weights.safetensors"]
      outs: ["data/models/${key}/adapted/weights.safetensors"]
  evaluate:
    foreach: ${methods}
    do:
      cmd: python -m stages.evaluate --method ${key}
      params: [seed, evaluate, "methods.${key}"]
      deps: [data/prepared, data/models/judge.bin, "data/models/${key}/weights.safetensors"]
      outs: ["data/evaluation/${key}/captions.parquet"]
"""
PARAMS = {
    "seed": 5,
    "train": {"epochs": 3},
    "adapt": {"epochs": 2},
    "evaluate": {"beam": 2},
    "methods": {
        "psst": {"from": "psst", "lambda": 0.5, "rho": 0.25},
        "luo": {"from": "luo", "lambda": 0.5},
        "mle": None,
    },
    "sweep": {"seeds": [1], "grid": {"psst": {"lambda": [0.1, 1e-05], "rho": [0.25]}, "luo": {"lambda": [0.9]}}},
}
TRAIN = """
import sys, time
from pathlib import Path
options = {key: value for key, value in zip(sys.argv, sys.argv[1:])}
out = Path(options["--out"])
with open("ran.txt", "a") as ran:
    ran.write(f"train {out.parent.name}/{out.name}\\n")
deadline = time.monotonic() + 600
while Path("slow").exists() and out.name == Path("slow").read_text() and time.monotonic() < deadline:
    time.sleep(0.1)
if Path("broken").exists():
    sys.exit("train: the disk is full")
for name in ("weights.safetensors", "metrics.json"):
    (out / name).write_text(" ".join(sys.argv[1:]))
(out / "history.jsonl").write_text('{"epoch": 1}\\n{"epoch": 2}\\n')
"""
ADAPT = """
import sys
from pathlib import Path
options = {key: value for key, value in zip(sys.argv, sys.argv[1:])}
out, model = Path(options["--out"]), Path(options["--model"])
with open("ran.txt", "a") as ran:
    ran.write(f"adapt {model.parent.name}/{model.name}\\n")
(model / "weights.safetensors").read_text()
for name in ("weights.safetensors", "history.jsonl", "metrics.json"):
    (out / name).write_text(" ".join(sys.argv[1:]).ljust(1_500_000))  # Snakemake hashes only smaller files by default
"""
EVALUATE = """
import json, os, sys
from pathlib import Path
import pyarrow, pyarrow.parquet
options = {key: value for key, value in zip(sys.argv, sys.argv[1:])}
out, model = Path(options["--out"]), Path(options["--model"])
with open("ran.txt", "a") as ran:
    ran.write(f"evaluate {model.parent.name}/{model.name}\\n")
if address := os.environ.get("SAYWHICH_METEOR"):
    assert Path(address).is_socket()
    with open("meteor.txt", "a") as addresses:
        addresses.write(address + "\\n")
trained = (model / "weights.safetensors").read_text()
assert (model / "adapted/weights.safetensors").exists()
settings = {"lambda": float(trained.split("lambda=")[1].split()[0]), "seed": int(options["--seed"])}
out.mkdir(exist_ok=True)
from pipeline.runtime.checksums import serialise_with_checksum
metrics = {"method": options["--method"], "settings": settings, "val": {"images": 2}}
(out / "metrics.json").write_text(serialise_with_checksum(metrics))
captions = {"split": ["val", "val"], "image": [3, 4], "caption": ["a", trained]}
pyarrow.parquet.write_table(pyarrow.table(captions), out / "captions.parquet")
"""


def write_workspace(folder: Path, profile: str = "profiles/default", train: str = TRAIN) -> None:
    """Write the workspace to `folder`, without any outputs; `train` is the program of the training stage."""
    for name in ("Snakefile", "profiles/environment.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in (profile, "docs/snakemake"):
        shutil.copytree(ROOT / name, folder / name)
    content = {
        "dvc.yaml": STAGES,
        "code.py": "1",
        "methods/psst.py": "1",
        "methods/luo.py": "1",
        "stages/__init__.py": "",
        "stages/train.py": train,
        "stages/adapt.py": ADAPT,
        "stages/evaluate.py": EVALUATE,
        "data/prepared/captions": "a dog",
        "data/models/speaker.bin": "s",
        "data/models/judge.bin": "j",
    }
    for name, text in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    write_params(folder)


def write_params(folder: Path, **changes) -> None:
    (folder / "params.yaml").write_text(json.dumps({**PARAMS, **changes}))


def pop_run_stages(folder: Path) -> list[str]:
    """Return the stages that ran since the last call, and delete their record."""
    record = folder / "ran.txt"
    lines = sorted(record.read_text().splitlines()) if record.exists() else []
    record.unlink(missing_ok=True)
    return lines


def list_jobs(*cells: str) -> list[str]:
    return sorted(f"{stage} {cell}" for cell in cells for stage in ("train", "adapt", "evaluate"))
