"""MLflow's SQLite database: its address, its complete creation, and its paths in a copy of the repository."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

# tables and their columns with absolute paths
PATHS = (("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"))
PART, ASIDE = ".part", ".incomplete"


def make_sqlite_address(path: Path) -> str:
    """Return SQLAlchemy's address of a SQLite database; a path with a `?` needs SQLite's own escaped form."""
    return f"sqlite:///file:{quote(str(path))}?uri=true" if "?" in str(path) else f"sqlite:///{path}"


def parse_sqlite_path(address: str) -> Path | None:
    """Return the absolute path of the database in an address `sqlite:///PATH`; None for other addresses."""
    if not address.startswith("sqlite:///"):
        return None
    path = address.removeprefix("sqlite:///").split("?")[0]
    return None if not path or path.startswith(("file:", ":")) else Path(path).absolute()


def create_database(path: Path) -> None:
    """Create MLflow's tables in the file `path` unless it has them; the caller holds the lock of the database.

    MLflow's migrations are not one transaction: a process killed between them leaves an unusable file. The tables are
    therefore made in a temporary file, which is then renamed to `path`. A file without runs whose migrations are not
    those of this MLflow gets the suffix ASIDE, in place of an earlier file of that name. One line on stderr reports
    this.
    """
    if path.exists() and path.stat().st_size:
        if not _is_incomplete(path):
            return
        aside = path.with_name(path.name + ASIDE)
        os.replace(path, aside)
        problem = "was created incompletely or by another version of MLflow, and has no run"
        print(f"MLflow: {path.name} {problem}: kept as {aside.name}", file=sys.stderr)
    part = path.with_name(path.name + PART)
    for leftover in (part, part.with_name(f"{part.name}-journal")):
        leftover.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(make_sqlite_address(part), (path.parent / "mlartifacts").as_uri())
    store.engine.dispose()
    os.replace(part, path)


def _is_incomplete(path: Path) -> bool:
    """Return whether the file has no run and its last migration is not the newest one of this MLflow."""
    from alembic.script import ScriptDirectory
    from mlflow.store import db_migrations

    newest = ScriptDirectory(os.path.dirname(str(db_migrations.__file__))).get_current_head()
    try:
        with closing(sqlite3.connect(path)) as connection:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            (runs,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    except sqlite3.DatabaseError:  # damaged, locked or without these tables: MLflow mends or reports it
        return False
    return runs == 0 and (row is None or row[0] != newest)


def move_paths(database: Path, old: str, new: str) -> None:
    """Replace the path prefix `old` by `new` in a copied repository, since MLflow stores absolute paths."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for table, column in PATHS:
            connection.execute(
                f"UPDATE {table} SET {column} = :new || substr({column}, length(:old) + 1) "
                f"WHERE {column} = :old OR substr({column}, 1, length(:old) + 1) = :old || '/'",
                {"old": old, "new": new},
            )
