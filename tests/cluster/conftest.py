"""One cluster for all of these tests, and a toy world whose grid has run on one machine."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Loopback, loopback, missing
from toy_grid import params
from toy_world import committed, succeed, written


@pytest.fixture(scope="session", autouse=True)
def ended() -> None:
    """Treat a request to end as Ctrl-C, so that fixtures stop their processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """Slurm with two nodes, an MLflow server and an S3 store."""
    if lacking := missing():
        pytest.skip(f"not installed: {', '.join(lacking)}; profiles/slurm/README.md says how")
    with loopback(tmp_path_factory.mktemp("up")) as running:
        yield running


@pytest.fixture(scope="session")
def world(up: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository after `make repro` on one machine; the store is its DVC remote."""
    folder = tmp_path_factory.mktemp("world")
    written(folder, params())
    succeed(folder, "dvc", "remote", "add", "--default", "store", "s3://saywhich/dvc")
    succeed(folder, "dvc", "remote", "modify", "store", "endpointurl", up.s3)
    succeed(folder, sys.executable, "-m", "pipeline.workflow.repro", **up.environment)
    committed(folder)
    return folder
