"""All methods by name, whatever module of pipeline/methods they are in."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

from pipeline import methods

MODULES = [import_module(f"pipeline.methods.{module.name}") for module in pkgutil.iter_modules(methods.__path__)]
METHODS = {
    name: function
    for module in MODULES
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}
FROM = {name: function.__module__.rpartition(".")[2] for name, function in METHODS.items()}
