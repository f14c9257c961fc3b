"""The content security policy of pages with inline scripts and styles."""

from __future__ import annotations

import base64
import hashlib


def hash_source(text: str) -> str:
    """Return the source expression of an inline script or style for a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
