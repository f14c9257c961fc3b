"""Names of params.yaml that become paths and parts of commands, checked before DVC or Snakemake inserts them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.config.reading import read_mapping, show_value
from pipeline.errors import UserError
from pipeline.section import NAME

CHECKED = "SAYWHICH_CHECKED"  # the environment variable with the SHA-256 of a params.yaml that was checked as a whole
DECODING_KEYS = ("rerank", "pragmatic")  # keys of a method's block that change its evaluation alone
SECTIONS = ("draw", "features", "pretrain", "methods", "sweep.grid")  # their keys name stages, folders and cells


def read_checked_names(path: Path = Path("params.yaml")) -> dict[str, Any]:
    """Read a parameter file, and check its names as `check_names` does.

    Raises UserError for an unreadable file and for a name that is not allowed. Other values are checked by
    `pipeline.config.load.load`.
    """
    params = read_mapping(path)
    check_names(params, path)
    return params


def check_names(params: Mapping[str, Any], path: Path) -> None:
    """Raise UserError for a name in the parameters of the file `path` that is not allowed.

    Raises UserError, too, for a section of names that is no mapping, and where `prepare.root` is a URL.
    """
    for key, name in _list_names(params, path):
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            expected = "names consist of letters, digits and underscores, and begin with a letter"
            raise UserError(f"{path}: {key}: {show_value(name)} is not allowed: {expected}")
    prepare = params.get("prepare")
    root = prepare.get("root") if isinstance(prepare, Mapping) else None
    if isinstance(root, str) and "://" in root:
        raise UserError(f"{path}: prepare.root: {show_value(root)} is an address; it must be a folder of this machine")


def find_value(params: Mapping[str, Any], dotted_key: str) -> Any:
    """Return the value at `dotted_key`, for example "sweep.grid"; None where there is none."""
    value: Any = params
    for key in dotted_key.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _list_names(params: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    for section_key in SECTIONS:
        section = find_value(params, section_key)
        if section is None:
            continue
        if not isinstance(section, Mapping):
            raise UserError(f"{path}: {section_key}: must be a mapping of names, and is {show_value(section)}")
        for name, block in section.items():
            yield section_key, name
            for key in ("features", "speaker", "from", "method"):
                if isinstance(block, Mapping) and block.get(key) is not None:
                    yield f"{section_key}.{name}.{key}", block[key]
            for grid in block if isinstance(block, list) else [block]:
                if section_key == "sweep.grid" and isinstance(grid, Mapping):
                    yield from ((f"{section_key}.{name}", option) for option in grid)
