"""What `make setup` asks for, with stand-ins for pip and uv that only note it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PIP = '#!/bin/sh\ntest "$1" = config && { test -n "$LINKS" && echo "$LINKS" || exit 1; }; exit 0\n'
UV = '#!/bin/sh\necho "$UV_FIND_LINKS $*" > asked.txt\n'


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("words", "links", "asked"),
    [
        ([], "", "--torch-backend auto "),
        (["TORCH=cu128"], "", "--torch-backend cu128 "),
        ([], "/wheels /more", "/wheels,/more pip install"),  # a machine's own wheels are taken as they are
    ],
)
def test_pytorch_is_for_the_hardware_that_is_there_or_that_is_named(tmp_path, words, links, asked):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name, text in (("pip", PIP), ("uv", UV)):
        program = tmp_path / ".venv/bin" / name
        program.write_text(text)
        program.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "MAKE"))}
    subprocess.run(["make", "setup", *words], cwd=tmp_path, env=environment | {"LINKS": links}, check=True)
    said = (tmp_path / "asked.txt").read_text()
    assert asked in said
    assert ("--torch-backend" in said) == (not links)
