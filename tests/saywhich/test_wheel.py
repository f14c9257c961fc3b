"""The wheel: its files, its requirements, and a caption in an environment with it alone."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pipeline.errors import UserError
from pipeline.runtime.extras import EXTRAS, explain_missing_extra

ROOT = Path(__file__).parents[2]
SOURCES = ("pipeline", "saywhich", "pyproject.toml", "setup.py", "README.md", "LICENSE")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
YAML_EXTENSION = "ruamel-yaml-clib"  # ruamel.yaml imports it where it is installed, and works without it
BASE = {"torch", "numpy", "numba", "PIL", "safetensors", "pydantic", "annotated_types", "ruamel", "jinja2", "tqdm"}
# a program that runs a command without access to the packages of the extras and of the clone
WITHOUT_EXTRAS = """
import sys
class ExtrasBlocker:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in sys.argv[1].split(","):
            return self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(ExtrasBlocker, sys.meta_path)
from saywhich.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel of this working tree with the environment's setuptools, and return its path."""
    folder = tmp_path_factory.mktemp("build")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "dist" / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def unpacked_wheel(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_no_common_name_is_installed(unpacked_wheel):
    assert sorted(path.name.partition("-")[0] for path in unpacked_wheel.iterdir()) == ["saywhich", "saywhich"]
    assert next(unpacked_wheel.glob("*.dist-info/top_level.txt")).read_text().split() == ["saywhich"]
    assert not (unpacked_wheel / "saywhich/_stages").exists()


def test_a_clone_named_saywhich_is_imported_from_the_folder_above_it(tmp_path):
    (tmp_path / "saywhich").symlink_to(ROOT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import saywhich; print(saywhich.load.__name__)"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "load\n", done.stderr


def test_every_file_of_both_packages_is_installed(unpacked_wheel):
    expected = {
        path.relative_to(ROOT if package == "saywhich" else ROOT / "pipeline")
        for package in ("saywhich", "pipeline")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    inside = unpacked_wheel / "saywhich/_pipeline"
    found = {
        path.relative_to(inside if inside in path.parents else unpacked_wheel) for path in inside.parent.rglob("*.*")
    }
    assert {path for path in found if (unpacked_wheel / path).is_file() or (inside / path).is_file()} == expected
    assert Path("saywhich/py.typed") in found


def test_no_module_of_the_wheel_names_the_packages_of_a_clone(unpacked_wheel):
    paths = list(unpacked_wheel.rglob("*.py"))
    assert len(paths) > 100
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += (
                re.findall(r"(?:^|-m )(pipeline\.[a-z_.]+)", str(node.value)) if isinstance(node, ast.Constant) else []
            )
            assert not [name for name in names if name.split(".")[0] == "pipeline"], f"{path}:{node.lineno}"


def list_imported_packages() -> Iterator[str]:
    """Yield the names of the packages that the modules import."""
    for path in (*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "saywhich").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and not node.level:
                yield (node.module or "").partition(".")[0]
            elif isinstance(node, ast.Import):
                yield from (each.name.partition(".")[0] for each in node.names)


def test_every_imported_package_is_required_or_of_an_extra():
    own = {"pipeline", "saywhich", *sys.stdlib_module_names}
    optional = {package for packages in EXTRAS.values() for package in packages}
    transitive = {
        "pydantic_core",
        "typing_extensions",
        "markupsafe",
        "packaging",
        "networkx",
        "voluptuous",
        "dvc_render",
        "grimp",
        "alembic",
    }  # requirements of pydantic, Jinja, DVC, MLflow and others
    assert set(list_imported_packages()) - own - transitive - optional == BASE


def test_every_requirement_of_an_extra_brings_a_package_that_the_error_names():
    packages_by_requirement: dict[str, set[str]] = {}
    for package, names in packages_distributions().items():
        for name in names:
            packages_by_requirement.setdefault(canonicalize_name(name), set()).add(package)
    for extra, packages in EXTRAS.items():
        for line in PROJECT["optional-dependencies"][extra]:
            if (name := canonicalize_name(Requirement(line).name)) not in ("saywhich", YAML_EXTENSION):
                assert packages_by_requirement[name] & set(packages), f"{extra}: {line}"


def test_a_missing_package_of_an_extra_is_reported_in_one_line():
    with (
        pytest.raises(UserError, match=r"^timm is not installed: pip install 'saywhich\[vision\]'$"),
        explain_missing_extra(),
    ):
        raise ModuleNotFoundError("No module named 'timm.data'", name="timm.data")
    with pytest.raises(ModuleNotFoundError, match="elsewhere"), explain_missing_extra():
        raise ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere")


def run_without_extras(unpacked_wheel: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    blocked = ",".join(("pipeline", "stages", *(package for packages in EXTRAS.values() for package in packages)))
    environment = os.environ | {"PYTHONPATH": str(unpacked_wheel)}
    command = [sys.executable, "-c", WITHOUT_EXTRAS, blocked, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_photos_are_captioned_and_retrieved_without_any_extra(unpacked_wheel, exported_model, photos):
    done = run_without_extras(
        unpacked_wheel, "caption", "--model", exported_model, photos / "a.jpg", "--among", photos, "--samples", 3
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{photos / 'a.jpg'}\t")
    done = run_without_extras(
        unpacked_wheel, "find", "--model", exported_model, "a dog", photos, "--html", photos / "found.html"
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    done = run_without_extras(unpacked_wheel, "serve", "--model", exported_model, "--port", "0")
    assert (done.returncode, done.stderr) == (2, "uvicorn is not installed: pip install 'saywhich[serve]'\n")


@pytest.mark.slow
def test_a_fresh_environment_with_the_wheel_captions_a_photo(wheel, exported_model, photos, tmp_path):
    run = make_environment(wheel, "", tmp_path / "fresh")
    done = run("saywhich", "caption", "--model", exported_model, photos / "a.jpg")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{photos / 'a.jpg'}\t")


@pytest.mark.slow
def test_a_fresh_environment_with_the_extra_judge_judges_captions(wheel, exported_model, photos, tmp_path):
    """Neither the command nor its installation needs DVC, Snakemake or MLflow."""
    run = make_environment(wheel, "[judge]", tmp_path / "fresh")
    (tmp_path / "captions.json").write_text('{"a": "a dog", "b": "a red boat", "c": "the beach"}')
    arguments = (
        tmp_path / "captions.json",
        "--images",
        photos,
        "--judge",
        exported_model,
        "--references",
        tmp_path / "captions.json",
    )
    done = run("saywhich", "judge", *arguments, "--html", tmp_path / "judged.html", "--json", tmp_path / "judged.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 images, 3 captions; 95 % intervals")
    assert "  METEOR " in done.stdout
    assert (tmp_path / "judged.html").stat().st_size > 10_000


def make_environment(wheel: Path, extra: str, folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Make an environment with the wheel, and return a function that runs its programs.

    The test is skipped without uv, or where no index can be reached. As in `make setup`, uv resolves the wheel's
    requirements from its index, or from wheels of the machine.
    """
    if (uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")) is None:
        pytest.skip("uv is not installed")
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    setting = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.find-links"], capture_output=True, text=True
    )
    links = os.environ.get("PIP_FIND_LINKS", setting.stdout.strip())
    backend = [] if links else ["--torch-backend", "cpu"]
    environment |= {"UV_FIND_LINKS": ",".join(links.split())} if links else {}
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], env=environment, check=True)
    constraints = ROOT / "constraints-hashed.txt"
    install = [uv, "pip", "install", "--python", folder / "bin/python", *backend, "-c", constraints, f"{wheel}{extra}"]
    done = subprocess.run(install, env=environment, capture_output=True, text=True)
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip(f"no index can be reached: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    find_packages = (
        "import importlib.util as u; print(*map(u.find_spec, ('pipeline', 'stages', 'dvc', 'snakemake', 'mlflow')))"
    )

    def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(folder / "bin" / program), *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    assert run("python", "-c", find_packages).stdout.split() == ["None"] * 5
    return run
