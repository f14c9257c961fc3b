"""Access to untrusted files: paths inside a folder, plain files, and arrays whose claimed size is checked."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import UserError

if TYPE_CHECKING:
    import h5py

MAX_ARRAY_BYTES = 64 * 2**20  # up to this size an array may have any compression
MAX_COMPRESSION = 256  # maximal ratio of unpacked to stored size for larger arrays


def leads_outside(name: str) -> bool:
    """Return whether `name` is an absolute path, names a drive, has a part `..` or contains a null byte.

    The rules of POSIX and of Windows apply.
    """
    absolute = PurePosixPath(name).is_absolute() or bool(PureWindowsPath(name).anchor)
    return absolute or ".." in re.split(r"[/\\]", name) or "\0" in name


def resolve_inside(folder: Path, name: str) -> Path:
    """Return the path of `name` below `folder`.

    Raises UserError where `leads_outside` is True, also for `a/../b`, and where a link leads outside `folder`.
    """
    path, real_folder = Path(folder, name), os.path.realpath(folder)
    if leads_outside(name) or os.path.commonpath([real_folder, os.path.realpath(path)]) != real_folder:
        raise UserError(
            f"{path}: leads outside {folder}, is absolute or has a part ..; put the file itself in that folder "
            "and give its path from there"
        )
    return path


def require_plain_file(path: Path) -> Path:
    """Return `path`, which may be missing. Raises UserError for a folder, a pipe or a device, which could block."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: expected a plain file, got a folder, a pipe or a device; name a file")
    return path


def read_dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return the numeric array `name` of an HDF5 file. Raises KeyError where there is nothing of this name.

    Raises UserError for a soft or external link, for values that are no numbers, and for an array stored in another
    file. Raises UserError, too, for an array of more than MAX_ARRAY_BYTES that claims more than
    MAX_COMPRESSION times its stored bytes.
    """
    import h5py

    node: Any = file
    for part in (part for part in name.split("/") if part not in ("", ".")):
        if not isinstance(node, h5py.Group):
            raise KeyError(name)
        if (link := node.get(part, getlink=True)) is None:
            raise KeyError(name)
        if not isinstance(link, h5py.HardLink):
            raise UserError(f"{file.filename}: {name} is a link; store the array itself there")
        node = node[part]
    if not isinstance(node, h5py.Dataset) or node.shape is None or not _has_numbers(node):
        raise UserError(f"{file.filename}: {name} is not an array of numbers; store a numeric array there")
    if node.is_virtual or node.external:
        raise UserError(f"{file.filename}: {name} lies in another file; store the array itself there")
    if _is_too_large(size := node.nbytes, node.id.get_storage_size()):
        raise UserError(
            f"{file.filename}: {name} claims to have {size:,} bytes, which the file cannot hold; write the file again"
        )
    return node


def read_npy(content: bytes) -> np.ndarray:
    """Return the array of an .npy file's bytes, as a view. Raises ValueError for damaged bytes or Python objects."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = reader(stream)
        if dtype.hasobject:
            raise ValueError("an array of Python objects")
        count, rest = int(np.prod(shape, dtype=object)), memoryview(content)[stream.tell() :]
        if count < 0 or count * dtype.itemsize != len(rest):
            raise ValueError(f"expected {shape} of {dtype}, found {len(rest)} bytes")
        return np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C")
    except Exception as error:  # NumPy parses the header as Python, which raises errors of many types
        raise ValueError(" ".join(str(error).split())[:160] or type(error).__name__) from None


def _has_numbers(node: h5py.Dataset) -> bool:
    try:
        return node.dtype.kind in "iufb"
    except TypeError:  # NumPy has no such type
        return False


def _is_too_large(size: int, stored_size: int) -> bool:
    return size > MAX_ARRAY_BYTES and size > MAX_COMPRESSION * stored_size
