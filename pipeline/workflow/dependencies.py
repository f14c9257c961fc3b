"""Digests of the code that decides the results of a stage: the import closure of the stage's script.

The stage `validate` and the Snakefile write the digests to files in data/code, which dvc.yaml lists.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.composition.method_modules import METHODS, find_method_modules
from pipeline.config.name_checks import find_value
from pipeline.config.reading import show_value, suggest_words
from pipeline.errors import UserError
from pipeline.models import architectures
from pipeline.runtime.files import compute_sha256, write_atomically
from pipeline.workflow.grid_cells import CELL_STAGES

if TYPE_CHECKING:
    from grimp import ImportGraph

ROOT = Path(__file__).parents[2]
CODE = Path("data/code")
# Modules whose code changes no results: digests cover parameters and cards themselves, and no stage reads the records.
WITHOUT_EFFECT = (
    "pipeline.config",
    "pipeline.tracking",
    "pipeline.errors",
    "pipeline.composition.method_card",
    "pipeline.workflow.dependencies",
    "pipeline.workflow.reuse",
    "pipeline.workflow.stage",
)
CARD_READER = "pipeline.report.method_names"  # the module that imports the cards of all methods, by their names


@cache
def build_import_graph() -> ImportGraph:
    """Build the import graph of `pipeline` and `stages`, without the modules of WITHOUT_EFFECT.

    The graph includes imports within functions, and imports of architectures by their names.
    """
    import grimp

    graph = grimp.build_graph("pipeline", "stages", exclude_type_checking_imports=True, cache_dir=None)
    for module in [name for name in graph.modules if name.startswith(WITHOUT_EFFECT)]:
        graph.remove_module(module)
    for architecture in architectures.ARCHITECTURES.values():
        graph.add_import(importer=architectures.__name__, imported=architecture.module)
    return graph


def find_import_closure(modules: Iterable[str]) -> set[str]:
    """Return `modules`, all modules that they import, and the packages of these, whose code an import runs."""
    graph, closure, new_modules = build_import_graph(), set[str](), set(modules)
    while new_modules:
        closure |= new_modules.union(*map(graph.find_upstream_modules, new_modules))
        packages = {module.rpartition(".")[0] for module in closure}
        new_modules = (packages & graph.modules) - closure
    return closure


def find_stage_modules(stage: str, methods: Collection[str] = ()) -> set[str]:
    """Return the import closure of a stage; `methods` are the keys `from` of the methods that the stage trains."""
    scripts, modules = {stage, *CELL_STAGES} if stage == "sweep" else {stage}, find_method_modules()
    return find_import_closure({f"stages.{name}" for name in scripts} | {modules[name] for name in methods})


def compute_code_digest(stage: str, methods: Collection[str] = ()) -> str:
    """Return the SHA-256 of the names and contents of `find_stage_modules`.

    The cards of methods count only in a stage that shows them, so that a new title causes no training.
    """
    modules = find_stage_modules(stage, methods)
    lines = [f"{module} {_compute_code_sha256(module)}" for module in sorted(modules)]
    if CARD_READER in modules:
        lines += [cards for module in sorted(find_method_modules().values()) if (cards := _split_cards(module)[1])]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def write_code_digests(params: Mapping[str, Any]) -> None:
    """Write data/code/train/<module>.sha256 of each method's module, and data/code/<stage>.sha256 of other stages.

    The digest of `sweep` covers the methods of its grid. Files are written only where their content changes, and other
    digests are removed. Raises UserError for a method whose module does not exist.
    """
    methods = _find_named_modules(params)
    digests = {f"train/{module}": compute_code_digest("train", [module]) for module in set(methods.values())}
    grid_modules = {methods[name] for name in find_value(params, "sweep.grid") or () if name in methods}
    for script in build_import_graph().find_children("stages") - {"stages.train"}:
        stage = script.rpartition(".")[2]
        digests[stage] = compute_code_digest(stage, grid_modules if stage == "sweep" else ())
    files = {CODE / f"{name}.sha256": f"{digest}\n".encode() for name, digest in digests.items()}
    for path, content in files.items():
        if not path.exists() or path.read_bytes() != content:
            write_atomically(path, content)
    for path in set(CODE.rglob("*.sha256")) - files.keys():
        path.unlink(missing_ok=True)


def _find_named_modules(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the key `from` of each method's block, the last part of its module's name.

    Raises UserError for a module that does not exist.
    """
    blocks = params.get("methods") or {}
    modules = {name: block["from"] for name, block in blocks.items() if isinstance(block, Mapping) and "from" in block}
    known_modules = sorted(find_method_modules())
    for name, module in modules.items():
        if module not in known_modules:
            problem = f"methods.{name}.from = {show_value(module)} is no module of {METHODS}"
            raise UserError(f"params.yaml: {problem}; {suggest_words(str(module), known_modules)}")
    return modules


def _compute_code_sha256(module: str) -> str:
    """Return the SHA-256 of a module's file. The file of a method's module counts without its cards."""
    if module in find_method_modules().values():
        return hashlib.sha256(_split_cards(module)[0].encode()).hexdigest()
    return compute_sha256(_locate_source(module))


def _split_cards(module: str) -> tuple[str, str]:
    """Return the source of a module without its assignment to CARDS, and this assignment, "" without one."""
    source = _locate_source(module).read_text(encoding="utf-8")
    lines = source.split("\n")
    for statement in ast.parse(source).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "CARDS" for target in targets):
            first, last = statement.lineno - 1, statement.end_lineno
            return "\n".join(lines[:first] + lines[last:]), "\n".join(lines[first:last])
    return source, ""


def _locate_source(module: str) -> Path:
    base = ROOT / module.replace(".", "/")
    package = base / "__init__.py"  # a former package may leave a folder with bytecode beside the module
    return package if package.is_file() else base.with_suffix(".py")
