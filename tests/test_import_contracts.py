"""The import contracts of pyproject.toml name all packages that they are about."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SLICES = {"pipeline.dialog", "pipeline.gradients", "pipeline.study", "pipeline.worlds"}


def contract(name: str) -> dict[str, Any]:
    """Return the contract whose name begins with `name`."""
    (found,) = (
        each
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if each["name"].startswith(name)
    )
    return found


def test_every_slice_is_kept_from_the_others():
    assert set(contract("Slices do not know each other")["modules"]) == SLICES
