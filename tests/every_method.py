"""All methods by name, from all modules of methods."""

import inspect
from importlib import import_module
from typing import get_type_hints

from pipeline.composition.method_modules import find_method_modules
from pipeline.dialog.composition.dialog_agents import DialogAgents

MODULES = [import_module(module) for module in find_method_modules().values()]
ALL = {
    name: function
    for module in MODULES
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}
IN_DIALOGS = {name: f for name, f in ALL.items() if get_type_hints(f)["agents"] is DialogAgents}
METHODS = {name: f for name, f in ALL.items() if name not in IN_DIALOGS}  # methods for captions
