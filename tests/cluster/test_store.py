"""Data and models through a DVC remote, artifacts through the MLflow server, both in an S3 store."""

import re
import urllib.request
from pathlib import Path

import pytest
from loopback import BUCKET, Loopback
from test_workflow import ran
from toy_grid import digests
from toy_world import succeed


def keys(up: Loopback) -> list[str]:
    """Return the bucket's keys, at most a thousand of each kind."""
    found = []
    for kind in ("dvc", "mlflow"):
        with urllib.request.urlopen(f"{up.s3}/{BUCKET}?list-type=2&prefix={kind}/", timeout=30) as answer:
            found += re.findall(r"<Key>(.*?)</Key>", answer.read().decode())
    return found


@pytest.fixture(scope="module")
def clone(up: Loopback, world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone elsewhere, after `dvc push` here and `dvc pull` there."""
    succeed(world, "dvc", "push", **up.environment)
    folder = tmp_path_factory.mktemp("elsewhere") / "clone"
    succeed(world, "git", "clone", "-q", str(world), str(folder))
    succeed(folder, "dvc", "pull", **up.environment)
    return folder


def test_a_clone_after_dvc_pull_is_up_to_date(clone, world, up):
    assert not (clone / "data/cells").exists()
    assert ran(succeed(clone, "dvc", "repro", **up.environment)) == []
    assert "up to date" in succeed(clone, "dvc", "status", **up.environment)
    gathered = {name: content for name, content in digests(world).items() if name.startswith("data/sweep")}
    assert gathered
    assert digests(clone) == gathered


def test_the_store_holds_data_models_and_artifacts(clone, up):
    held = keys(up)
    assert sum(key.startswith("dvc/files/md5/") for key in held) > 20
    assert any(key.startswith("mlflow/") and key.endswith("outputs/weights.safetensors") for key in held)
