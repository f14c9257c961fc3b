"""Check of params.yaml before any stage runs, and digests of the code of all stages.

python -m stages.validate --check: the check alone, without the check of SPICE's parser.
python -m stages.validate → data/code: one file per stage, and one per method's module for `train`. Each other stage
depends on its file, so that an edit that can change results reruns the stages that import the edited module.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config.load import load
from pipeline.config.name_checks import CHECKED, find_value, read_checked_names
from pipeline.errors import UserError
from pipeline.runtime.command import end_process, run_command
from pipeline.runtime.files import compute_digest
from pipeline.workflow.dependencies import write_code_digests

PARAMS = Path("params.yaml")
SPICE, SPICE_REWARDS = "SPICE", ("spice", "spider")  # as a metric; as rewards (pipeline/scores/rewards.py)


def main(arguments: Sequence[str] = ()) -> int:
    """Check params.yaml, write the digests of the code without --check, and return the exit status.

    The status is 2 for an error in params.yaml, or a reward that cannot be computed here.
    """
    parser = argparse.ArgumentParser(prog="python -m stages.validate", allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="check params.yaml, and write nothing")
    only_check = parser.parse_args(arguments).check

    def work() -> None:
        params = read_checked_names()
        if not only_check:
            check_spice(params)
        if only_check or os.environ.get(CHECKED) != compute_digest(PARAMS):  # else `make repro` has just checked it
            load(PARAMS)
            check_speakers(params)
        if not only_check:
            write_code_digests(params)

    return run_command("validate", work)


def check_speakers(params: Mapping[str, Any]) -> None:
    """Raise UserError for a method without a speaker, on whose weights the train stage in dvc.yaml depends."""
    for name, block in params["methods"].items():
        if "speaker" not in (block or {}):
            raise UserError(f"params.yaml: methods.{name}.speaker is missing: name a speaker of pretrain")


def check_spice(params: Mapping[str, Any]) -> None:
    """Check that SPICE's parser is installed where SPICE is used.

    Raises UserError for a reward without it. For a metric without it, a line on stderr reports the missing metric.
    """
    rewarded = [f"methods.{name}.reward" for name, reward in _list_rewards(params) if _needs_spice(reward)]
    metrics = find_value(params, "evaluate.metrics")
    if not rewarded and not (isinstance(metrics, list) and SPICE in metrics):
        return
    from pipeline.metrics.java import NotComputedError, find_spice_jar

    try:
        find_spice_jar()
    except NotComputedError as reason:
        if rewarded:
            raise UserError(f"params.yaml: {rewarded[0]}: {reason}") from None
        print(f"validate: evaluate.metrics: {reason}; evaluations omit SPICE", file=sys.stderr)


def _list_rewards(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each method's name with the reward of its block, and with each reward of its grid."""
    for name, block in (params.get("methods") or {}).items():
        if isinstance(block, Mapping):
            yield name, block.get("reward")
    for name, grids in (find_value(params, "sweep.grid") or {}).items():
        for grid in grids if isinstance(grids, list) else [grids]:
            values = grid.get("reward") if isinstance(grid, Mapping) else None
            yield from ((name, reward) for reward in (values if isinstance(values, list) else ()))


def _needs_spice(reward: Any) -> bool:
    return bool(reward.get(SPICE)) if isinstance(reward, Mapping) else reward in SPICE_REWARDS


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
