"""One cluster for all of these tests, and a toy world that is trained up to the grid."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from loopback import Loopback, loopback, missing
from test_workflow import KEPT, ROOT, succeed, toy_params

# The grid: two short trainings, and one that is long enough for Slurm to find that its time is up.
SHORT, OTHER, LONG = "psst_multinomial/lambda=0.002,seed=1", "luo/lambda=0.5,seed=1", "long/lambda=0.5,seed=1"
CELLS = (SHORT, OTHER, LONG)


def params() -> dict:
    """The toy world's, with trainings that last longer than it takes to stop them."""
    toy = toy_params()
    toy["train"]["optimisation"] |= {"epochs": 400, "validate_every": 400}
    once = {"train": {"optimisation": {"epochs": 1, "validate_every": 1}}}
    longer = {"train": {"optimisation": {"epochs": 6000, "validate_every": 6000}}}
    toy["methods"] = {
        "mle": toy["methods"]["mle"] | once,
        "psst_multinomial": toy["methods"]["psst_multinomial"] | once,
        "luo": toy["methods"]["luo"] | once,
        "long": toy["methods"]["luo"] | {"method": "luo"} | longer,
    }
    return toy


@pytest.fixture(scope="session")
def up(tmp_path_factory) -> Iterator[Loopback]:
    """Slurm with two nodes, an MLflow server and a store."""
    if lacking := missing():
        pytest.skip(f"not installed: {', '.join(lacking)}; profiles/slurm/README.md says how")
    with loopback(tmp_path_factory.mktemp("up")) as running:
        yield running
