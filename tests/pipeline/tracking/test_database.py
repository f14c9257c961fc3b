"""MLflow's database is complete or absent."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.tracking.database import create_database, make_sqlite_address, parse_sqlite_path

# alembic logs each migration before running it
CREATE_AND_KILL = """
import logging, os, signal, sys
from itertools import count
from pathlib import Path
from pipeline.tracking.database import create_database
migrations, logger = count(), logging.getLogger("alembic.runtime.migration")
logger.addFilter(lambda record: next(migrations) < 20 or os.kill(os.getpid(), signal.SIGKILL))
logger.setLevel("INFO")
create_database(Path(sys.argv[1]))
"""


def read_revision(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]


def execute_statement(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Return a database that was created after another process was killed while it created the same file."""
    path = tmp_path_factory.mktemp("a ? b") / "mlflow.db"
    done = subprocess.run([sys.executable, "-c", CREATE_AND_KILL, str(path)], stderr=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGKILL
    assert [part.name for part in path.parent.glob("mlflow.db*")] == ["mlflow.db.part"]
    create_database(path)
    return path


def test_a_killed_creation_leaves_no_database_and_the_next_is_complete(database):
    assert sorted(os.listdir(database.parent)) == ["mlflow.db"]
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_a_complete_database_stays(database):
    inode = database.stat().st_ino
    create_database(database)
    assert database.stat().st_ino == inode


def test_an_incomplete_database_without_runs_is_set_aside(database, capfd):
    newest = read_revision(database)
    execute_statement(database, "UPDATE alembic_version SET version_num = '17e22815139b'")
    create_database(database)
    assert read_revision(database) == newest
    assert read_revision(database.with_name("mlflow.db.incomplete")) == "17e22815139b"
    message = "or by another version of MLflow, and has no run: kept as mlflow.db.incomplete"
    assert message in capfd.readouterr().err


def test_a_database_of_an_earlier_version_with_runs_is_kept(database):
    execute_statement(database, "INSERT INTO runs (run_uuid, lifecycle_stage, experiment_id) VALUES ('a', 'active', 0)")
    newest = read_revision(database)
    execute_statement(database, "UPDATE alembic_version SET version_num = '17e22815139b'")
    create_database(database)
    assert read_revision(database) == "17e22815139b"
    execute_statement(database, f"UPDATE alembic_version SET version_num = '{newest}'")
    execute_statement(database, "DELETE FROM runs")


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("sqlite:////a/b.db", "/a/b.db"),
        ("sqlite:////a/b.db?timeout=5", "/a/b.db"),
        ("sqlite:///:memory:", None),
        ("sqlite:///file:/a/b.db?uri=true", None),
        ("http://127.0.0.1:5000", None),
        ("postgresql://host/runs?sslmode=require", None),
        (make_sqlite_address(Path("/a b/c.db")), "/a b/c.db"),
    ],
)
def test_an_sqlite_address_gives_the_path_of_its_file(address, path):
    assert parse_sqlite_path(address) == (None if path is None else Path(path))
