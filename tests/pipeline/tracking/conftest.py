"""An empty working folder for each test, and a database that MLflow creates once."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from preloaded_python import find_program

from pipeline.tracking import recorder
from pipeline.tracking.tracker import connect


@pytest.fixture(autouse=True)
def workspace(tmp_path, monkeypatch):
    """Change to an empty working folder, use a preloaded Python, and delete the environment variables of tracking."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recorder.sys, "executable", find_program("python"))  # senders have imported mlflow already
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "DVC_ROOT", "DVC_EXP_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SAYWHICH_TRACKING", "SAYWHICH_PARENT_RUN", "SAYWHICH_CELL", "SAYWHICH_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def manual_sending(monkeypatch):
    """Start no sender, so that recorded runs are sent on demand only."""
    monkeypatch.setattr(recorder, "Sender", lambda folder: SimpleNamespace(wait=lambda: None))


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory) -> Path:
    """Create a database as a first client does; other tests copy it."""
    folder = tmp_path_factory.mktemp("database")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.delenv("DVC_ROOT", raising=False)
        connect()
    return folder / "mlflow.db"


@pytest.fixture
def database(empty_database, tmp_path):
    return shutil.copy(empty_database, tmp_path / "mlflow.db")
