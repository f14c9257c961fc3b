"""The common part of all stages but validate: command line, parameters, folders and checkpoint key.

python -m stages.train --method psst_multinomial --set train.optimisation.epochs=2 --seed 3 --out DIR
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config.data_schema import MAIN
from pipeline.config.load import load
from pipeline.config.name_checks import DECODING_KEYS
from pipeline.config.schema import Params
from pipeline.config.views import StageParameters
from pipeline.errors import UserError
from pipeline.runtime.command import run_command
from pipeline.runtime.cores import count_cores
from pipeline.runtime.files import clear_parts, compute_digest
from pipeline.runtime.memory import keep_freed
from pipeline.workflow.dependencies import compute_code_digest

if TYPE_CHECKING:
    import torch

DATA = Path("data")
OUTPUT_FOLDERS = {
    "draw": "raw/{}",
    "prepare": "prepared",
    "features": "features/{}",
    "pretrain": "pretrained/{}",
    "retriever": "retriever",
    "train": "models/{}",
    "adapt": "models/{}/adapted",
    "evaluate": "evaluation/{}",
    "sweep": "sweep",
    "cross": "crossed",
    "report": "report",
}
PARALLEL_STAGES = ("pretrain", "retriever", "train", "adapt")  # stages that may run as several processes
INSTANCE = {
    "draw": "dataset",
    "features": "features",
    "pretrain": "role",
    "train": "method",
    "adapt": "method",
    "evaluate": "method",
}


@dataclass(frozen=True)
class Stage:
    """One execution of a stage."""

    name: str
    instance: str | None  # the data set, features, role or method; None for stages without instances
    params: StageParameters[Params]
    out: Path  # the folder to write to
    model: Path  # adapt, evaluate: the folder of the trained model
    root: Path = DATA
    shard: tuple[int, int] | None = None  # features: the k-th of n parts; None: all missing parts, then joined
    _digests: dict[Path, str] = field(default_factory=dict, repr=False)

    @property
    def title(self) -> str:
        """Return DVC's name of the stage, such as train@psst_multinomial."""
        return self.params.stage

    @property
    def settings(self) -> Params:
        """Return the settings; the stage can read only those that dvc.yaml lists for it."""
        return self.params.settings

    @property
    def seed(self) -> int:
        """Return the seed of the settings."""
        return self.settings.seed

    @property
    def checkpoint_seconds(self) -> float:
        """Return the seconds between checkpoints: SAYWHICH_CHECKPOINT_SECONDS, 60 by default; 0: every step.

        Raises UserError where the variable is no number of 0 or more.
        """
        value = os.environ.get("SAYWHICH_CHECKPOINT_SECONDS", "60")
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not seconds >= 0:
            raise UserError(f"SAYWHICH_CHECKPOINT_SECONDS={value}: must be a number of seconds, 0 or more")
        return seconds

    @cached_property
    def device(self) -> torch.device:
        """Return this process's accelerator, or the CPU; join the group of processes if there are several.

        Each process has its own accelerator, if there are any.
        """
        import torch

        from pipeline.runtime import matmul_precision, ranks

        device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda":  # evaluations need the precision, too; on a CPU, `build_training` chooses it
            matmul_precision.choose_precision((), device)
        ranks.join_process_group(device)
        return device

    def compute_digests(self, inputs: Sequence[Path]) -> dict[str, str]:
        """Return the SHA-256 of each input file or folder, as of its first use. Raises UserError if one is missing."""
        for path in inputs:
            try:
                self._digests[path] = self._digests.get(path) or compute_digest(path)
            except FileNotFoundError:
                problem = f"{path}: no such input; run the stage that writes it first (dvc repro runs all)"
                raise UserError(problem) from None
        return {str(path): self._digests[path] for path in inputs}

    def compute_key(self, inputs: Sequence[Path]) -> str:
        """Return a digest of the stage's parameters, the content of its inputs, and the code that it imports.

        The paths of the model and of the outputs do not change the key. In `train` and `adapt`, the method's name
        and its keys rerank and pragmatic, which only an evaluation uses, do not change the key either.
        """
        prefix, params = f"methods.{self.instance}.", self.params.flatten()
        methods = [str(params[f"{prefix}from"])] if self.name == "train" else []
        title = self.title
        if self.name in ("train", "adapt"):  # a method's name and its evaluation change no weights
            keys = (key for key in params if not key.startswith(tuple(f"{prefix}{key}" for key in DECODING_KEYS)))
            title, params = self.name, {key.replace(prefix, "methods.*."): params[key] for key in keys}
        parts = {
            "stage": title,
            "params": params,
            "inputs": {
                path.removeprefix(f"{self.model}/"): digest for path, digest in self.compute_digests(inputs).items()
            },
            "code": compute_code_digest(self.name, methods),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def main(name: str, run: Callable[[Stage], None], arguments: Sequence[str] | None = None) -> int:
    """Read the command line of stage `name`, check params.yaml, and call `run`; return `run_command`'s exit status.

    A training saves a checkpoint on a request to end. OMP_NUM_THREADS sets the number of threads, by default the number
    of available cores. With SAYWHICH_PROCESSES=n a training runs as n processes under torchrun, by default with an n-th
    of the threads. Each process has its own accelerator, if there are any, and its part of each batch.
    """
    options = _parse_options(name, arguments)

    def work() -> None:
        if name in PARALLEL_STAGES:
            _replace_by_torchrun(name, sys.argv[1:] if arguments is None else arguments)
        os.environ.setdefault("OMP_NUM_THREADS", str(count_cores()))
        keep_freed()
        stage = _build_stage(name, options)
        clear_parts(stage.out)
        run(stage)

    try:
        return run_command(name, work)
    finally:
        if ranks := sys.modules.get("pipeline.runtime.ranks"):
            ranks.leave_process_group()


def open_stage(name: str, arguments: Sequence[str]) -> Stage:
    """Return the stage `name` with the options of a command line, without running it."""
    return _build_stage(name, _parse_options(name, arguments))


def _build_stage(name: str, options: argparse.Namespace) -> Stage:
    overrides = [*options.set, *([] if options.seed is None else [f"seed={options.seed}"])]
    # DVC passes its own name of an instance, such as train@psst_multinomial
    instance = getattr(options, INSTANCE[name]).rpartition("@")[2] if name in INSTANCE else None
    stage_params = load(options.params, overrides).select_for_stage(name, instance)
    return Stage(
        name=name,
        instance=instance,
        params=stage_params,
        out=options.out or DATA / OUTPUT_FOLDERS[name].format(instance),
        model=getattr(options, "model", None) or DATA / OUTPUT_FOLDERS["train"].format(instance),
        shard=_parse_shard(getattr(options, "shard", None)),
    )


def _parse_shard(value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", value)
    if not match or int(match[1]) > int(match[2]):
        raise UserError(f"--shard {value}: must read K/N, the K-th of N parts, as in 1/8")
    return int(match[1]), int(match[2])


def _parse_options(name: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m stages.{name}", allow_abbrev=False)
    if name in INSTANCE:
        extra = {"default": MAIN} if name == "features" else {"required": True}
        kind = INSTANCE[name]
        parser.add_argument(f"--{kind}", metavar="NAME", help=f"name of the {kind} in params.yaml", **extra)
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set a parameter, as in a.b=1; repeatable"
    )
    parser.add_argument("--seed", metavar="N", help="short for --set seed=N")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"default: {DATA / OUTPUT_FOLDERS[name].format('NAME')}"
    )
    if name in ("adapt", "evaluate"):
        parser.add_argument("--model", type=Path, metavar="DIR", help="the trained model; default: data/models/NAME")
    if name == "features":
        parser.add_argument(
            "--shard", metavar="K/N", help="extract only the K-th of N parts; default: all missing parts, then join"
        )
    return parser.parse_args(arguments)


def _replace_by_torchrun(name: str, arguments: Sequence[str]) -> None:
    """Replace this process by torchrun if SAYWHICH_PROCESSES is above 1 and torchrun has not started this process.

    Raises UserError where the variable is no whole number of 1 or more.
    """
    processes = os.environ.get("SAYWHICH_PROCESSES", "1")
    if not re.fullmatch(r"[1-9]\d*", processes):
        raise UserError(f"SAYWHICH_PROCESSES={processes}: must be a number of processes, 1 or more")
    if processes == "1" or "TORCHELASTIC_RUN_ID" in os.environ:
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, count_cores() // int(processes))))
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    os.execv(sys.executable, [sys.executable, *torchrun, "-m", f"stages.{name}", *arguments])
