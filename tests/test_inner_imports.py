"""Packages that load quickly are imported at the top of a module, not in functions (CONTRIBUTING.md)."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIGHT = {*sys.stdlib_module_names, "PIL", "jinja2", "markupsafe", "pydantic", "ruamel", "tqdm"}


def find_inner_imports(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the package of each import inside a function."""
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                yield from ((node.lineno, name.partition(".")[0]) for name in names)


def test_functions_import_no_light_package():
    assert list(find_inner_imports("def f():\n    import json.decoder\n    from torch import nn\n")) == [
        (2, "json"),
        (3, "torch"),
    ]
    found = [
        f"{path.relative_to(ROOT)}:{line} {package}"
        for folder in ("pipeline", "saywhich", "stages")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, package in find_inner_imports(path.read_text(encoding="utf-8"))
        if package in LIGHT
    ]
    assert not found
