"""`make setup` with stubs of pip, uv and Python; locked files, the container, commit hooks and hosted tests."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PIP = '#!/bin/sh\ntest "$1" = config && { test -n "$LINKS" && echo "$LINKS" || exit 1; }; exit 0\n'
PYTHON = '#!/bin/sh\necho "$*" > python.txt\n'
UV = '#!/bin/sh\necho "$UV_FIND_LINKS $*" > uv.txt\n'


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("arguments", "links", "expected"),
    [
        ([], "", "--torch-backend auto "),
        (["TORCH=cu128"], "", "--torch-backend cu128 "),
        (
            [],
            "/wheels /more",
            "/wheels,/more pip install",
        ),  # local wheels are used without a choice of hardware
    ],
)
def test_pytorch_is_for_the_present_or_the_named_hardware(tmp_path, arguments, links, expected):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, text in (("pip", PIP), ("uv", UV), ("python", PYTHON)):
        program = tmp_path / ".venv/bin" / name
        program.write_text(text)
        program.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints-hashed.txt", "requirements-uv.txt"):
        shutil.copy(ROOT / name, tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "MAKE"))}
    subprocess.run(["make", "setup", *arguments], cwd=tmp_path, env=environment | {"LINKS": links}, check=True)
    command = (tmp_path / "uv.txt").read_text()
    assert "-c constraints-hashed.txt -b constraints-hashed.txt" in command
    assert (tmp_path / "python.txt").read_text() == "-m pipeline.workflow.dvc_settings\n"
    assert (tmp_path / ".dvc/tmp").stat().st_mode & 0o777 == 0o700
    assert expected in command
    assert ("--torch-backend" in command) == (not links)


def test_every_locked_file_except_pytorchs_has_a_hash():
    """The versions in uv's file with hashes equal those in pip's constraints."""
    locked = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line]
    text = re.sub(r"^#.*\n", "", (ROOT / "constraints-hashed.txt").read_text(), flags=re.MULTILINE)
    entries = [entry.split("--hash=") for entry in text.replace("\\\n", "").splitlines()]
    assert sorted(entry[0].strip() for entry in entries) == sorted(locked)
    hashes = {entry[0].split("==")[0]: [part.strip() for part in entry[1:]] for entry in entries}
    assert {name for name, found in hashes.items() if not found} == {"torch", "torchvision"}
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for found in hashes.values() for each in found)


def test_uv_is_pinned_with_its_hashes():
    first, *hashes = (ROOT / "requirements-uv.txt").read_text().replace("\\\n", "").split("--hash=")
    assert re.fullmatch(r"uv==[\d.]+\s*", first)
    assert len(hashes) > 4


def test_the_image_has_a_base_by_digest_and_installs_locked_files():
    text = (ROOT / "Containerfile").read_text()
    (base,) = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:[\w.-]+@sha256:[0-9a-f]{64}", base)
    assert "pip install --no-cache-dir --require-hashes -r requirements-uv.txt" in text
    assert "-c constraints-hashed.txt -b constraints-hashed.txt" in text


def test_a_file_with_another_hash_is_not_installed(tmp_path):
    """uv checks the hashes of a constraints file."""
    if (uv := shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")) is None:
        pytest.skip("uv is not installed")
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    digest_of_wheel = hashlib.sha256((tmp_path / "tiny-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    for digest, status in ((digest_of_wheel, 0), ("0" * 64, 1)):
        (tmp_path / "constraints.txt").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")
        command = [uv, "pip", "install", "--offline", "--no-index", "--no-cache", "--find-links", ".", "--target", "to"]
        done = subprocess.run([*command, "-c", "constraints.txt", "tiny"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        shutil.rmtree(tmp_path / "to", ignore_errors=True)
    assert "Hash mismatch" in done.stderr


@pytest.mark.parametrize("path", [".pre-commit-config.yaml", ".github/workflows/ci.yml", ".ci/run"])
def test_hooks_and_continuous_integration_call_targets_that_exist(path):
    called = set(re.findall(r"\bmake ([a-z][a-z-]*)", re.sub(r"^ *#.*", "", (ROOT / path).read_text(), flags=re.M)))
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert "check" in called
    assert called <= targets


def test_hosted_tests_run_on_the_oldest_python_that_is_supported():
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f">={jobs['test']['strategy']['matrix']['python'][0]}" == project["requires-python"]


def test_commit_hooks_format_and_check_with_make():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repository["hooks"]] == ["make fmt", "make check"]
    assert not any(hook["pass_filenames"] for hook in repository["hooks"])
