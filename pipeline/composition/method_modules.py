"""The modules that define methods: those of pipeline/methods, and of the package `methods` of each slice."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

METHODS = "pipeline/methods"
PIPELINE = Path(__file__).parents[1]
PACKAGE = __name__.removesuffix(".composition.method_modules")  # its value differs between the wheel and a clone


def find_method_modules() -> dict[str, str]:
    """Return the full name of each module by its last part, which `from` in params.yaml names.

    The packages are imported, but not their modules.
    """
    slices = sorted(path.parts[-3] for path in PIPELINE.glob("*/methods/__init__.py"))
    packages = [import_module(f"{PACKAGE}.{name}") for name in ("methods", *(f"{each}.methods" for each in slices))]
    return {
        module.name: f"{package.__name__}.{module.name}"
        for package in packages
        for module in pkgutil.iter_modules(package.__path__)
    }
