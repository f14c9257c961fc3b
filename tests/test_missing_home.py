"""A user without an entry in the list of users and without HOME, as in containers."""

from functools import partial
from pathlib import Path

import pytest
from missing_home import USER, run_without_home
from saywhich_world import make_repository, paint

from saywhich.exporting import export_model

CODE = """
import getpass, os, sys
from pathlib import Path
from pipeline.channels import vocabulary_kernels  # numba's cache
from pipeline.runtime import cache
assert os.getuid() == 12345
home = Path.home()
assert (home.stat().st_uid, home.stat().st_mode & 0o777) == (12345, 0o700), home
assert cache.make_private_folder("photos").is_dir()
print(home, getpass.getuser())
"""


@pytest.fixture
def run_python(tmp_path):
    """Return a function that runs Python as a user without a home; the test is skipped without root or setpriv."""
    tmp_path.chmod(0o1777)  # the mode of /tmp
    return partial(run_without_home, tmp_path)


def test_a_user_without_a_home_has_a_private_one(run_python, tmp_path):
    assert run_python("-c", CODE) == f"{tmp_path}/saywhich-{USER} {USER}\n"
    assert run_python("-c", CODE) == f"{tmp_path}/saywhich-{USER} {USER}\n"  # the second run reuses the caches


def test_importing_the_package_alone_gives_a_home(run_python, tmp_path):
    code = "import saywhich; from pathlib import Path; print(Path.home())"
    assert run_python("-c", code) == f"{tmp_path}/saywhich-{USER}\n"


def test_a_user_with_a_home_and_without_a_name_is_named_by_the_id(run_python, tmp_path):
    """Containers set HOME for a user of any id, and MLflow asks for the user's name."""
    code = "import saywhich; import getpass; from pathlib import Path; print(Path.home(), getpass.getuser())"
    assert run_python("-c", code, HOME="/") == f"/ {USER}\n"


def test_a_home_prepared_by_another_user_is_not_used(run_python, tmp_path):
    (tmp_path / f"saywhich-{USER}").mkdir(mode=0o777)
    found = Path(run_python("-c", CODE).split()[0])
    assert found.parent == tmp_path
    assert found.name.startswith(f"saywhich-{USER}-")


@pytest.mark.slow
def test_a_user_without_a_home_captions_photos_and_searches_with_a_cache(run_python, tmp_path):
    for folder in ("repository", "photos"):
        (tmp_path / folder).mkdir()
    root = make_repository(tmp_path / "repository")
    export_model(root / "models/psst_multinomial", tmp_path / "model")
    for seed, name in enumerate("abc"):
        paint(tmp_path / "photos" / f"{name}.jpg", seed)
    for path in tmp_path.rglob("*"):
        path.chmod(path.stat().st_mode | 0o444 | (0o111 if path.is_dir() else 0))
    assert run_python("-m", "saywhich", "caption", "photos", "--model", "model").count("\n") == 3
    found = run_python("-m", "saywhich", "find", "a boat", "photos", "--model", "model")
    assert found.count(".jpg") == 3
    assert run_python("-m", "saywhich", "find", "a boat", "photos", "--model", "model") == found
    assert list((tmp_path / f"saywhich-{USER}").rglob("vectors.sqlite"))
