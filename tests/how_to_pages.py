"""The pages of docs/how_to as patches: their titled blocks are files, or changes of files, of the project."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pipeline.config.reading import read_mapping

PAGES = Path(__file__).parents[1] / "docs" / "how_to"
BLOCK = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SETTINGS = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(page: str, folder: Path) -> list[str]:
    """Write and change in `folder`, a copy of the project, what the page says, and return these files."""
    found = BLOCK.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    for kind, path, text in found:
        file = folder / path
        assert file.exists() == (kind == "diff")
        file.write_text(patched(file.read_text(encoding="utf-8"), text) if kind == "diff" else text, encoding="utf-8")
    return sorted({path for _, path, _ in found})


def patched(before: str, patch: str) -> str:
    """Return `before` with the changes of a patch of one hunk without line numbers."""
    lines = patch.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
    assert before.count(old) == 1, f"the page changes lines that are not there once:\n{old}"
    return before.replace(old, new)


def settings(page: str, folder: Path) -> dict[str, Any]:
    """Return the keys of params.yaml that the page's blocks name; `folder` is for a file."""
    (text,) = SETTINGS.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))
    (folder / f"{page}.yaml").write_text(text, encoding="utf-8")
    return read_mapping(folder / f"{page}.yaml")


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return `below` with the values of `above` in their places."""
    both = {key: merged(below[key], above[key]) for key in below.keys() & above.keys() if isinstance(above[key], dict)}
    return below | above | both
