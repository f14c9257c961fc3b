"""`make repro` under nohup, setsid, at a terminal or in a container, asked to end.

All of its tree ends, nothing new begins, and the same command goes on.
"""

import json
import shutil
import subprocess
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM, Signals

import pytest
from stopped import CONTAINER, GROUP, HANG_UP, KEYBOARD, began, repository, tree

PATIENCE = 60.0  # seconds, beside other tests; make fault-injection holds the ten seconds that RELIABILITY.md promises

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture(scope="module")
def new(tmp_path_factory) -> Path:
    """A repository in which nothing has run."""
    repository(folder := tmp_path_factory.mktemp("new"))
    (folder / "long trainings").touch()
    return folder


@pytest.fixture(scope="module")
def trained_repository(tmp_path_factory) -> Path:
    """A repository in which only the grid has not run."""
    repository(folder := tmp_path_factory.mktemp("trained"))
    (folder / "long cells").touch()
    with tree(folder) as running:
        running.wait_for(lambda: len(began(folder)) == 4)
        assert not running.stop(GROUP, SIGTERM, PATIENCE)
    (folder / "began.txt").unlink()
    shutil.rmtree(folder / "data/checkpoints")
    return folder


@pytest.mark.parametrize(
    ("kind", "request_to_end", "nohup"),
    [
        (GROUP, SIGINT, True),
        pytest.param("make", SIGHUP, False, marks=pytest.mark.slow),
        pytest.param("dvc", SIGINT, True, marks=pytest.mark.slow),
        pytest.param("stage", SIGTERM, True, marks=pytest.mark.slow),
        pytest.param("repro", SIGTERM, False, marks=pytest.mark.slow),
        pytest.param(GROUP, SIGTERM, False, marks=pytest.mark.slow),
    ],
)
def test_trainings_side_by_side_end(new, tmp_path, kind, request_to_end, nohup):
    check(Path(shutil.copytree(new, tmp_path / "repository")), kind, request_to_end, nohup)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "request_to_end"), [(KEYBOARD, SIGINT), (HANG_UP, SIGHUP)])
def test_trainings_at_a_terminal_end(new, tmp_path, kind, request_to_end):
    check(Path(shutil.copytree(new, tmp_path / "repository")), kind, request_to_end, nohup=False, terminal=True)


@pytest.mark.slow
def test_a_container_ends_on_a_request_to_its_first_process(new, tmp_path):
    if shutil.which("unshare") is None or subprocess.run([*CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("process namespaces are not allowed here")
    folder = Path(shutil.copytree(new, tmp_path / "repository"))
    with tree(folder, nohup=False, container=True) as running:
        running.wait_for(lambda: len(began(folder)) == 2)
        assert not running.stop("first", SIGTERM, PATIENCE), running.printed()
        assert running.make.returncode == 128 + SIGTERM, running.printed()
    assert running.printed().count("repro: ended by SIGTERM (") == 1
    assert "Traceback" not in running.printed()
    assert len(list((folder / "data/checkpoints").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "request_to_end", "nohup"),
    [(GROUP, SIGTERM, True), ("snakemake", SIGINT, True), ("stage", SIGTERM, True), ("sweep", SIGHUP, False)],
)
def test_the_grid_ends(trained_repository, tmp_path, kind, request_to_end, nohup):
    folder = tmp_path / "a b?c#d%41 'é\"$x"  # a name that nothing takes for anything else
    check(Path(shutil.copytree(trained_repository, folder)), kind, request_to_end, nohup)


def check(folder: Path, kind: str, request: Signals, nohup: bool, terminal: bool = False) -> None:
    """Stop two running trainings, and check their ends."""
    with tree(folder, nohup, terminal=terminal) as running:
        running.wait_for(lambda: len(began(folder)) == 2)
        assert not running.stop(kind, request, PATIENCE), running.printed()
        printed, status = running.printed(), running.make.returncode
    # make has a status of its own where a child of it was asked to end, or a shell has made it ignore the signal
    dies = kind in ("make", KEYBOARD, HANG_UP) or (kind == GROUP and request != SIGINT)
    # at a terminal make and its child get the signal together, and make sees either of the two first
    assert status in ((-request, 2) if kind == KEYBOARD else (-request,) if dies else (2,)), printed
    assert f"Error {128 + request}" in printed
    assert len([line for line in printed.splitlines() if line.startswith(f"repro: ended by {request.name} (")]) == 1
    assert "Traceback" not in printed
    assert len(began(folder)) == 2
    saved = list((folder / "data/checkpoints").iterdir())
    assert len(saved) == 2
    if (kind, request, nohup) != (GROUP, SIGTERM, True):
        return
    for file in folder.glob("long *"):
        file.unlink()
    with tree(folder) as running:
        assert running.make.wait() == 0, running.printed()
    assert len(json.loads((folder / "data/sweep/cells.json").read_text())) == 3
