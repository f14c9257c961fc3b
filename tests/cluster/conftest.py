"""One Slurm cluster for the tests of this folder, and a toy world whose grid has run on one machine."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Loopback, find_missing, run_services
from toy_grid import make_params
from toy_world import commit_all, succeed, write_repository


@pytest.fixture(scope="session", autouse=True)
def sigterm_handler() -> None:
    """Handle SIGTERM as Ctrl-C, so that fixtures stop their processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """Start Slurm with two nodes, an MLflow server and an S3 store."""
    if missing := find_missing():
        pytest.skip(f"not installed: {', '.join(missing)}; see profiles/slurm/README.md")
    with run_services(tmp_path_factory.mktemp("up")) as loopback:
        yield loopback


@pytest.fixture(scope="session")
def world(services: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository after `make repro` on one machine; the store is its DVC remote."""
    folder = tmp_path_factory.mktemp("world")
    write_repository(folder, make_params())
    succeed(folder, "dvc", "remote", "add", "--default", "store", "s3://saywhich/dvc")
    succeed(folder, "dvc", "remote", "modify", "store", "endpointurl", services.s3)
    succeed(folder, sys.executable, "-m", "pipeline.workflow.repro", **services.environment)
    commit_all(folder)
    return folder
