"""MLflow's database is complete or absent."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.tracking.database import create_database, file_of, sqlite_address

CREATE = """
import sys
from pathlib import Path
from pipeline.tracking.database import create_database
create_database(Path(sys.argv[1]))
"""


def revision(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A database that was created after another process had been killed while it created the same."""
    path = tmp_path_factory.mktemp("a ? b") / "mlflow.db"
    process = subprocess.Popen([sys.executable, "-c", CREATE, str(path)], stderr=subprocess.DEVNULL)
    part = path.with_name("mlflow.db.part")
    while not (part.exists() and part.stat().st_size > 100_000):  # in the midst of the migrations
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not path.exists()
    create_database(path)
    return path


def test_a_killed_creation_leaves_no_database_and_the_next_is_complete(database):
    assert sorted(os.listdir(database.parent)) == ["mlflow.db"]
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_a_complete_database_stays(database):
    before = database.stat().st_ino
    create_database(database)
    assert database.stat().st_ino == before


def test_an_incomplete_database_without_runs_is_set_aside(database, capfd):
    newest = revision(database)
    change(database, "UPDATE alembic_version SET version_num = '17e22815139b'")
    create_database(database)
    assert revision(database) == newest
    assert revision(database.with_name("mlflow.db.incomplete")) == "17e22815139b"
    assert "mlflow.db was not created completely and has no run: kept as mlflow.db.incomplete" in capfd.readouterr().err


def test_a_database_of_an_earlier_version_with_runs_is_kept(database):
    change(database, "INSERT INTO runs (run_uuid, lifecycle_stage, experiment_id) VALUES ('a', 'active', 0)")
    newest = revision(database)
    change(database, "UPDATE alembic_version SET version_num = '17e22815139b'")
    create_database(database)
    assert revision(database) == "17e22815139b"
    change(database, f"UPDATE alembic_version SET version_num = '{newest}'")
    change(database, "DELETE FROM runs")


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("sqlite:////a/b.db", "/a/b.db"),
        ("sqlite:////a/b.db?timeout=5", "/a/b.db"),
        ("sqlite:///:memory:", None),
        ("sqlite:///file:/a/b.db?uri=true", None),
        ("http://127.0.0.1:5000", None),
        (sqlite_address(Path("/a b/c.db")), "/a b/c.db"),
    ],
)
def test_the_file_of_an_address(address, path):
    assert file_of(address) == (None if path is None else Path(path))
