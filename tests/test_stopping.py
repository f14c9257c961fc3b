"""Requests to end `make repro` under nohup or setsid, at a terminal or in a container.

The whole process tree ends, no new stage begins, and the same command resumes.
"""

import json
import shutil
import subprocess
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM, Signals

import pytest
from process_stopping import CONTAINER, GROUP, HANG_UP, KEYBOARD, list_begun_trainings, start_tree, write_repository

BUSY_BOUND = 60.0  # seconds, while other tests run; make fault-injection checks the ten seconds of RELIABILITY.md

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture(scope="module")
def new_repository(tmp_path_factory) -> Path:
    """Return a repository in which no stage has run."""
    write_repository(folder := tmp_path_factory.mktemp("new"))
    (folder / "long trainings").touch()
    return folder


@pytest.fixture(scope="module")
def trained_repository(tmp_path_factory) -> Path:
    """Return a repository in which only the grid has not run."""
    write_repository(folder := tmp_path_factory.mktemp("trained"))
    (folder / "long cells").touch()
    with start_tree(folder) as running:
        running.wait_for(lambda: len(list_begun_trainings(folder)) == 4)
        assert not running.stop(GROUP, SIGTERM, BUSY_BOUND)
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
def test_trainings_side_by_side_end(new_repository, tmp_path, kind, request_to_end, nohup):
    check(Path(shutil.copytree(new_repository, tmp_path / "repository")), kind, request_to_end, nohup)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "request_to_end"), [(KEYBOARD, SIGINT), (HANG_UP, SIGHUP)])
def test_trainings_at_a_terminal_end(new_repository, tmp_path, kind, request_to_end):
    check(
        Path(shutil.copytree(new_repository, tmp_path / "repository")), kind, request_to_end, nohup=False, terminal=True
    )


@pytest.mark.slow
def test_a_container_ends_on_a_request_to_its_first_process(new_repository, tmp_path):
    if shutil.which("unshare") is None or subprocess.run([*CONTAINER, "true"], capture_output=True).returncode:
        pytest.skip("process namespaces are not allowed here")
    folder = Path(shutil.copytree(new_repository, tmp_path / "repository"))
    with start_tree(folder, nohup=False, container=True) as running:
        running.wait_for(lambda: len(list_begun_trainings(folder)) == 2)
        assert not running.stop("first", SIGTERM, BUSY_BOUND), running.read_output()
        assert running.make.returncode == 128 + SIGTERM, running.read_output()
    assert running.read_output().count("repro: ended by SIGTERM (") == 1
    assert "Traceback" not in running.read_output()
    assert len(list((folder / "data/checkpoints").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "request_to_end", "nohup"),
    [(GROUP, SIGTERM, True), ("snakemake", SIGINT, True), ("stage", SIGTERM, True), ("sweep", SIGHUP, False)],
)
def test_the_grid_ends(trained_repository, tmp_path, kind, request_to_end, nohup):
    folder = tmp_path / "a b?c#d%41 'é\"$x"  # characters that shells, make and URLs treat specially
    check(Path(shutil.copytree(trained_repository, folder)), kind, request_to_end, nohup)


def check(folder: Path, kind: str, request: Signals, nohup: bool, terminal: bool = False) -> None:
    """Ask two running trainings to end, and check exit status, messages and checkpoints.

    After SIGTERM to the process group under nohup, the same command must complete the run.
    """
    with start_tree(folder, nohup, terminal=terminal) as running:
        running.wait_for(lambda: len(list_begun_trainings(folder)) == 2)
        assert not running.stop(kind, request, BUSY_BOUND), running.read_output()
        printed, status = running.read_output(), running.make.returncode
    # make returns status 2 if only a child was asked to end, or if a shell made it ignore the signal
    ends_by_signal = kind in ("make", KEYBOARD, HANG_UP) or (kind == GROUP and request != SIGINT)
    # at a terminal, make and its child get the signal together, and the child may end before make handles the signal
    assert status in ((-request, 2) if kind == KEYBOARD else (-request,) if ends_by_signal else (2,)), printed
    assert f"Error {128 + request}" in printed
    assert len([line for line in printed.splitlines() if line.startswith(f"repro: ended by {request.name} (")]) == 1
    assert "Traceback" not in printed
    assert len(list_begun_trainings(folder)) == 2
    saved = list((folder / "data/checkpoints").iterdir())
    assert len(saved) == 2
    if (kind, request, nohup) != (GROUP, SIGTERM, True):
        return
    for file in folder.glob("long *"):
        file.unlink()
    with start_tree(folder) as running:
        assert running.make.wait() == 0, running.read_output()
    assert len(json.loads((folder / "data/sweep/cells.json").read_text())) == 3
