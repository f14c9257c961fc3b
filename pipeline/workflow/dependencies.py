"""Dependencies of each stage in dvc.yaml: the code that the stage imports.

python -m pipeline.workflow.dependencies writes the code under `deps:` of every stage. A folder is listed where all
of its modules are imported, single files elsewhere. A method's own module is listed as
pipeline/methods/${item.from}.py.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config.reading import read_mapping
from pipeline.runtime.command import run_command
from pipeline.runtime.files import write_atomically

if TYPE_CHECKING:
    from grimp import ImportGraph

ROOT = Path(__file__).parents[2]
# These change no results: parameters are listed themselves, records are only written, and an error ends a run.
DECIDES_NOTHING = (
    "pipeline.config",
    "pipeline.tracking",
    "pipeline.errors",
    "pipeline.workflow.stage",
    "pipeline.workflow.reuse",
)
# Every method depends on all of these, so that a new method changes no list.
SHARED_BY_METHODS = ("pipeline.channels", "pipeline.estimators", "pipeline.scores", "pipeline.composition")
CELL_STAGES = ("train", "adapt", "evaluate")  # stages that Snakemake runs for each cell of `sweep`
SWEEP = ("stages.sweep", "pipeline.workflow.grid_cells")


@cache
def graph() -> ImportGraph:
    """Return the import graph, imports within functions included, without the modules of DECIDES_NOTHING."""
    import grimp

    found = grimp.build_graph("pipeline", "stages", exclude_type_checking_imports=True, cache_dir=None)
    for module in [m for m in found.modules if m.startswith(DECIDES_NOTHING)]:
        found.remove_module(module)
    return found


def needed(stage: str) -> set[str]:
    """Return the modules with code that decide the results of `stage`, without the methods' own modules."""
    begin = {*SWEEP, *below("pipeline.methods")} if stage == "sweep" else {f"stages.{stage}"}
    if stage == "train":
        begin = begin.union(
            *map(below, SHARED_BY_METHODS), *map(graph().find_upstream_modules, below("pipeline.methods"))
        )
    found = begin.union(*map(graph().find_upstream_modules, begin))
    if stage == "sweep":
        found = found.union(*map(needed, CELL_STAGES))
    packages = {m.rpartition(".")[0] for m in found}  # importing a module runs its packages' code
    return {module for module in found | packages if _has_code(module)}


def below(room: str) -> set[str]:
    """Return the modules with code in `room` and its subfolders."""
    return {m for m in graph().modules if m.startswith(f"{room}.") and _has_code(m)}


def listed(stage: str, block: dict) -> set[str]:
    """Return the modules with code among the `deps` of a stage's `block` in dvc.yaml."""
    paths = [ROOT / dep for dep in block.get("do", block)["deps"] if _is_code(dep)]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    names = {re.sub(r"/__init__$", "", str(file.relative_to(ROOT).with_suffix(""))).replace("/", ".") for file in files}
    return {name for name in names if name in graph().modules and _has_code(name)}


def lines(stage: str) -> list[str]:
    """Return the paths to be listed for `stage`."""
    modules, found = needed(stage), set()
    for module in modules:
        parts = module.split(".")
        rooms = [".".join(parts[:k]) for k in range(2, len(parts) + 1)]
        whole = next((room for room in rooms if (inside := below(room)) and inside <= modules), None)
        found.add(whole.replace(".", "/") if whole else str(_file(module).relative_to(ROOT)))
    return sorted(found)


def rewritten(text: str) -> str:
    """Return dvc.yaml's `text` with each stage's code dependencies replaced by `lines`."""
    stage, out, done = "", [], set()
    for line in text.splitlines():
        if match := re.match(r"  (\w+):", line):
            stage = match[1]
        entry = re.match(r"( +- )(\S+)$", line)
        if entry and _is_code(entry[2]):
            if stage not in done:
                out += [entry[1] + path for path in lines(stage)]
            done.add(stage)
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def _is_code(dep: str) -> bool:
    return dep.startswith(("pipeline/", "stages/")) and "${" not in dep


def _file(module: str) -> Path:
    base = ROOT / module.replace(".", "/")
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def _has_code(module: str) -> bool:
    """Return whether the module has more than a docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(_file(module).read_text(encoding="utf-8")).body)


def main(arguments: Sequence[str]) -> int:
    """Write dvc.yaml; return the exit status."""
    path = ROOT / "dvc.yaml"
    assert read_mapping(path)["stages"]
    write_atomically(path, rewritten(path.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(run_command("dependencies", lambda: main(sys.argv[1:])))
