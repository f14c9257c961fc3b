"""The pages of docs/how_to as patches: their titled blocks are files of the project, or changes of such files."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import preloaded_python
from toy_world import UNFINISHED

from pipeline.config.reading import read_mapping

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "how_to"
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SETTINGS = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def copy_project(folder: Path, names: Iterable[str] = ("pipeline", "params.yaml")) -> Path:
    """Copy the files and folders `names` of the project to `folder`, and return `folder`."""
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=UNFINISHED)
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def run_program(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in `folder`, a copy of the project, with the packages of the copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [preloaded_python.find_program("python"), "-c", program, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def apply_page(page: str, folder: Path) -> list[str]:
    """Apply the titled blocks of a page to `folder`, a copy of the project; return the paths of the written files."""
    blocks = BLOCK.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    for kind, path, text in blocks:
        file = folder / path
        assert file.exists() == (kind == "diff")
        file.write_text(
            apply_patch(file.read_text(encoding="utf-8"), text) if kind == "diff" else text, encoding="utf-8"
        )
    return sorted({path for _, path, _ in blocks})


def apply_patch(content: str, patch: str) -> str:
    """Return `content` with the changes of a patch of one hunk without line numbers."""
    lines = patch.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
    assert content.count(old) == 1, f"the page changes lines that do not occur exactly once:\n{old}"
    return content.replace(old, new)


def read_settings(page: str, folder: Path) -> dict[str, Any]:
    """Return the parameters in the only untitled YAML block of a page; a copy of the block is written to `folder`."""
    (text,) = SETTINGS.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    (folder / f"{page}.yaml").write_text(text, encoding="utf-8")
    return read_mapping(folder / f"{page}.yaml")


def merge_settings(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `changes`, merged key by key at all levels."""
    merged = {
        key: merge_settings(base[key], changes[key])
        for key in base.keys() & changes.keys()
        if isinstance(changes[key], dict)
    }
    return base | changes | merged
