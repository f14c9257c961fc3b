"""The import contracts of pyproject.toml name all packages that they concern."""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SLICES = {"pipeline.dialog", "pipeline.gradients", "pipeline.study", "pipeline.worlds"}


def get_contract(name: str) -> dict[str, Any]:
    """Return the contract whose name begins with `name`."""
    (contract,) = (
        contract
        for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith(name)
    )
    return contract


def test_no_slice_may_import_another():
    assert set(get_contract("Slices do not import each other")["modules"]) == SLICES


def test_no_other_package_but_the_registries_may_import_a_slice():
    contract = get_contract("The core imports no slice")
    assert set(contract["forbidden_modules"]) == SLICES
    paths = [path for path in (ROOT / "pipeline").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    packages = {f"pipeline.{path.stem}" for path in paths if not path.stem.startswith("__")}
    assert set(contract["source_modules"]) == packages - SLICES - {"pipeline.slices"}
