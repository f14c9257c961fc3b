"""Commands in a repository on a read-only disk end with one line and status 2."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from full_disk import mount_read_only
from preloaded_python import find_program

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def read_only_repository(tmp_path_factory) -> Iterator[Path]:
    """Yield a repository without outputs on a read-only disk; the test is skipped where mounting is not allowed."""
    folder = tmp_path_factory.mktemp("read_only")
    shutil.copy(ROOT / "params.yaml", folder)
    (folder / "profiles").symlink_to(ROOT / "profiles")
    (folder / "dvc.yaml").write_text(
        "stages:\n  validate:\n    cmd: python -m stages.validate\n    deps: [params.yaml]\n"
    )
    (folder / ".dvc").mkdir()
    (folder / ".dvc/config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    try:
        with mount_read_only(folder):
            yield folder
    except PermissionError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "command",
    [
        "stages.validate", "pipeline.workflow.grid_cells gather data/sweep", "pipeline.config.overlays films",
        "pipeline.workflow.repro", "pipeline.worlds.scenes --sheet sheet.png",
        "pipeline.worlds.films --sheet sheet.png",
        pytest.param("stages.gradients --worlds 1 --epochs 1 --rounds 1 --repeats 1 --only ST", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_read_only_disk_is_reported_in_one_line(read_only_repository, command):
    done = subprocess.run(
        [find_program("python"), "-m", *command.split()],
        cwd=read_only_repository, capture_output=True, text=True, check=False,
        env={
            "PATH": "/usr/bin:/bin", "HOME": str(read_only_repository.parent), "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        },
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "the file system is read-only" in done.stderr.splitlines()[-1]
