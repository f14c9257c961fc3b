"""Functions that run stages in this process, in the working folder or in another folder."""

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pipeline.workflow import stage

ROOT = Path(__file__).parents[1]


def run_stage(name: str, *arguments: str) -> int:
    """Run a stage in the working folder, and return its exit status."""
    return stage.main(name, import_module(f"stages.{name}").run, arguments)


def run_stages(folder: Path, params: dict[str, Any], *commands: tuple[str, ...], **environment: str) -> Path:
    """Write params.yaml and dvc.yaml into `folder`, and run stages there, each given by its name and its arguments.

    Tracking is off unless `environment` is given.
    """
    (folder / "params.yaml").write_text(json.dumps(params))  # YAML without anchors
    shutil.copy(ROOT / "dvc.yaml", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for variable, value in (environment or {"SAYWHICH_TRACKING": "off"}).items():
            patch.setenv(variable, value)
        for command in commands:
            assert run_stage(*command) == 0, command
    return folder


def enter_copy(world: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy `world` into `folder`, and make the copy, which a test may change, the working folder."""
    monkeypatch.setenv("SAYWHICH_TRACKING", "off")
    monkeypatch.chdir(shutil.copytree(world, folder / "world"))
    return folder / "world"
