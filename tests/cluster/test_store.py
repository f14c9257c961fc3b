"""Data and models in a DVC remote, and artifacts of the MLflow server, both in an S3 store."""

import re
import urllib.request
from pathlib import Path

import pytest
from loopback import BUCKET, Loopback
from test_workflow import list_rerun_stages
from toy_grid import compute_digests
from toy_world import succeed


def list_keys(services: Loopback) -> list[str]:
    """Return the bucket's keys, at most a thousand of each kind."""
    found = []
    for kind in ("dvc", "mlflow"):
        with urllib.request.urlopen(f"{services.s3}/{BUCKET}?list-type=2&prefix={kind}/", timeout=30) as answer:
            found += re.findall(r"<Key>(.*?)</Key>", answer.read().decode())
    return found


@pytest.fixture(scope="module")
def clone(services: Loopback, world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone in another folder, after `dvc push` in the world and `dvc pull` in the clone."""
    succeed(world, "dvc", "push", **services.environment)
    folder = tmp_path_factory.mktemp("elsewhere") / "clone"
    succeed(world, "git", "clone", "-q", str(world), str(folder))
    succeed(folder, "dvc", "pull", **services.environment)
    return folder


def test_a_clone_after_dvc_pull_is_up_to_date(clone, world, services):
    assert not (clone / "data/cells").exists()
    assert list_rerun_stages(succeed(clone, "dvc", "repro", **services.environment)) == []
    assert "up to date" in succeed(clone, "dvc", "status", **services.environment)
    sweep_digests = {name: content for name, content in compute_digests(world).items() if name.startswith("data/sweep")}
    assert sweep_digests
    assert compute_digests(clone) == sweep_digests


def test_the_store_holds_data_models_and_artifacts(clone, services):
    keys = list_keys(services)
    assert sum(key.startswith("dvc/files/md5/") for key in keys) > 20
    assert any(key.startswith("mlflow/") and key.endswith("outputs/weights.safetensors") for key in keys)
