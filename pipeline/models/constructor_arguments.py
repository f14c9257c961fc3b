"""Arguments of a network's constructor, which are saved with its weights and rebuild it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOT_STORED = ("self", "__class__", "null_image")  # `Decoder.add_null_image` stores `null_image`


def collect_constructor_arguments(scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in `scope`, the `locals()` at the beginning of a constructor, as JSON values.

    An argument that is a network becomes its class and arguments, and a tuple becomes a list.
    """
    return {name: _serialise(value) for name, value in scope.items() if name not in NOT_STORED}


def _serialise(value: Any) -> Any:
    if hasattr(value, "arguments"):
        return {"kind": type(value).__name__, "arguments": value.arguments}
    return list(value) if isinstance(value, tuple) else value
