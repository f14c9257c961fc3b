"""Untrusted safetensors files: plain files with a bounded header and finite numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import SafetensorError, safe_open

from pipeline.errors import UserError, reason
from pipeline.runtime.untrusted import require_plain_file

HEADER = 16 * 2**20  # bytes, at most


def read_tensors(
    path: Path, remedy: str, prefix: str = "", framework: Literal["pt", "np"] = "pt"
) -> tuple[Mapping[str, str], dict[str, Any]]:
    """Return the metadata of a safetensors file, and its tensors whose names begin with `prefix`, without it.

    Raises UserError, which ends in `remedy`, for a missing or damaged file and for numbers that are not finite.
    """
    try:
        _check_header(path)
        with safe_open(path, framework) as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
            tensors = {name.removeprefix(prefix): file.get_tensor(name) for name in names}
            metadata = file.metadata() or {}
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file of weights; {remedy}") from None
    except Exception as error:  # from the library, or from NumPy for an unknown dtype
        raise UserError(f"{path}: not a whole safetensors file ({reason(error)}); {remedy}") from None
    require_finite(path, tensors, remedy, prefix)
    return metadata, tensors


def shapes_of(path: Path, remedy: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a safetensors file's tensors. Raises UserError as `read_tensors` does."""
    try:
        _check_header(path)
        with safe_open(path, "np") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a whole safetensors file ({reason(error)}); {remedy}") from None


def require_finite(path: Path, tensors: Mapping[str, Any], remedy: str, prefix: str = "") -> None:
    """Raise UserError for the first tensor with a number that is NaN or infinite, also in single precision."""
    for name, tensor in tensors.items():
        is_numpy = isinstance(tensor, np.ndarray)
        with np.errstate(over="ignore"):
            finite = np.isfinite(tensor.astype(np.float32)).all() if is_numpy else tensor.float().isfinite().all()
        if not finite:
            raise UserError(f"{path}: {prefix}{name} is not a number, or infinite; {remedy}")


def _check_header(path: Path) -> None:
    """Raise ValueError where the header is longer than the file or than HEADER."""
    with open(require_plain_file(path), "rb") as file:
        length, size = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size
    if not 0 < length <= min(HEADER, size - 8):
        raise ValueError(
            f"its header claims to have {length:,} bytes, and {min(HEADER, max(size - 8, 0)):,} are possible"
        )
