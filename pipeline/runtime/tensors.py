"""Readers of untrusted safetensors files, with checks for plain files, bounded headers and finite numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from safetensors import safe_open

from pipeline.errors import UserError, summarise_error
from pipeline.runtime.untrusted import require_plain_file

MAX_HEADER_BYTES = 16 * 2**20


def read_tensors(
    path: Path, remedy: str, prefix: str = "", framework: Literal["pt", "np"] = "pt"
) -> tuple[Mapping[str, str], dict[str, Any]]:
    """Return the metadata of a safetensors file, and the tensors whose names begin with `prefix`, which is cut.

    Raises UserError, which ends in `remedy`, for a missing or damaged file and for numbers that are not finite. A
    dtype that `framework` lacks counts as damage.
    """
    with _open_file(path, remedy, framework) as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
        tensors = {name.removeprefix(prefix): file.get_tensor(name) for name in names}
        metadata = file.metadata() or {}
        require_finite(path, tensors, remedy, prefix)
    return metadata, tensors


def read_shapes(path: Path, remedy: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a safetensors file's tensors, without reading their numbers.

    Raises UserError, which ends in `remedy`, for a missing or damaged file.
    """
    with _open_file(path, remedy, "np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def require_finite(path: Path, tensors: Mapping[str, Any], remedy: str, prefix: str = "") -> None:
    """Raise UserError for the first tensor with a number that is NaN, or infinite in single precision."""
    for name, tensor in tensors.items():
        is_numpy = isinstance(tensor, np.ndarray)
        with np.errstate(over="ignore"):
            finite = np.isfinite(tensor.astype(np.float32)).all() if is_numpy else tensor.float().isfinite().all()
        if not finite:
            raise UserError(
                f"{path}: {prefix}{name} contains NaN or a value that is infinite in single precision; {remedy}"
            )


@contextmanager
def _open_file(path: Path, remedy: str, framework: Literal["pt", "np"]) -> Iterator[Any]:
    """Open a safetensors file; raise UserError for any error of opening or reading it."""
    try:
        _check_header(path)
        with safe_open(path, framework) as file:
            yield file
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file of weights; {remedy}") from None
    except Exception as error:  # from the library, or from NumPy or PyTorch for a dtype that they lack
        problem = (
            f"not a complete safetensors file, or it has a dtype that NumPy or PyTorch lacks ({summarise_error(error)})"
        )
        raise UserError(f"{path}: {problem}; {remedy}") from None


def _check_header(path: Path) -> None:
    """Raise ValueError where the header is empty, or longer than the file or than MAX_HEADER_BYTES.

    Raises UserError for a pipe, a device or a folder.
    """
    with open(require_plain_file(path), "rb") as file:
        length, size = int.from_bytes(file.read(8), "little"), os.fstat(file.fileno()).st_size
    if not 0 < length <= min(MAX_HEADER_BYTES, size - 8):
        raise ValueError(f"header of {length:,} bytes; expected 1 to {min(MAX_HEADER_BYTES, max(size - 8, 0)):,}")
