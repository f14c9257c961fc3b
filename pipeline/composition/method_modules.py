"""The modules that define methods: those of pipeline/methods, and of the package `methods` of each slice."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

import pipeline

METHODS = "pipeline/methods"


def method_modules() -> dict[str, str]:
    """Return the full name of each module by its last part, which `from` in params.yaml names; imports none of them."""
    slices = sorted(path.parts[-3] for path in Path(pipeline.__path__[0]).glob("*/methods/__init__.py"))
    packages = [import_module(name) for name in ("pipeline.methods", *(f"pipeline.{each}.methods" for each in slices))]
    return {
        module.name: f"{package.__name__}.{module.name}"
        for package in packages
        for module in pkgutil.iter_modules(package.__path__)
    }
