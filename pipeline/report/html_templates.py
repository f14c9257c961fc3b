"""Templates of HTML pages, and the content security policy of their inline scripts and styles."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def open_templates(folders: Sequence[Path]) -> Environment:
    """Return an environment of the templates in `folders`; it escapes data, and raises an error for a missing value."""
    loader = FileSystemLoader(folders)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def hash_source(text: str) -> str:
    """Return the hash of an inline script or style for a content security policy, without quotes."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
