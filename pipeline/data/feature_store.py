"""Image features in one HDF5 file: a vector and a set of regions per image.

The layout is float16 and contiguous. Rows are read by their position in the file (pread), and PyTorch converts them to
float32. A memory map is not used. Its pages count as the process's memory, up to the whole file in an epoch, and each
row waits for the disk. With the file in the page cache, a map is 5 / 2.2 / 1.7 times faster than pread for the rows
below. The difference is negligible in a training step.

`benchmarks/feature_store.py` prints the milliseconds for 128 shuffled rows of one size (`--regions`, `--size`). For
rows of 16×128 / 25×256 / 49×1280, with one thread and the file in the page cache, they are:

    mapped, PyTorch's cast       .29 /  .90 /  16
    mapped, NumPy's cast         1.3 /   12 /  81
    mapped, float32              .30 /  .91 /  32    200 % of the file size
    h5py, contiguous             2.4 /   17 / 102
    h5py, chunks of one row      2.6 /   35 /  99
    h5py, with gzip              9.8 /   50 / 405    62 % of the file size
"""

from __future__ import annotations

import errno
import io
import math
import os
import shutil
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from pipeline.errors import UserError
from pipeline.runtime.checksums import read_checksummed_json, serialise_with_checksum
from pipeline.runtime.files import atomic_path, write_atomically
from pipeline.runtime.untrusted import read_dataset, require_plain_file

FILE, MANIFEST = "features.h5", "manifest.json"
DTYPES = {"pooled": "<f2", "regions": "<f2", "region_count": "<i4", "boxes": "<f4", "crc": "<u4", "crc_pooled": "<u4"}


class FeatureWriter(AbstractContextManager):
    """Writer of features.h5 and manifest.json in a folder. Both get their names only when every row is written.

    With `mirrored` there are two rows for image i of M: row i, and row M + i for its mirror image. Rows may be written
    in any order and in parts. `crc` has a checksum of each row, and `crc_pooled` has a checksum of each vector alone.
    With `boxes` every region has a box. An error in the block leaves no new file. Raises UserError where a row is
    missing at the end of the block, and OSError where the disk lacks room.
    """

    def __init__(
        self,
        folder: Path,
        images: int,
        pooled_size: int,
        regions_shape: tuple[int, int],
        boxes: bool = False,
        mirrored: bool = False,
    ):
        self.folder, rows = Path(folder), images * (1 + mirrored)
        self.manifest: dict[str, Any] = {"mirrored": True} if mirrored else {}
        self._boxes = boxes
        self._shape = (rows, pooled_size, *regions_shape)
        self._written = np.zeros(rows, bool)
        self._crc, self._crc_pooled = np.zeros(rows, np.uint32), np.zeros(rows, np.uint32)

    def __enter__(self) -> Self:
        import h5py

        rows, pooled, regions, size = self._shape
        shapes = {"pooled": (pooled,), "regions": (regions, size), "region_count": (), "boxes": (regions, 4)}
        shapes |= {"crc": (), "crc_pooled": ()}
        if not self._boxes:
            del shapes["boxes"]
        with ExitStack() as stack:
            path = stack.enter_context(atomic_path(self.folder / FILE))
            _require_space(
                path, sum(rows * math.prod(shapes[name]) * np.dtype(DTYPES[name]).itemsize for name in shapes)
            )
            self._file = stack.enter_context(h5py.File(path, "w", libver="latest"))
            for name, shape in shapes.items():
                self._file.create_dataset(name, (rows, *shape), DTYPES[name])
            self._exit_stack = stack.pop_all()
        return self

    def write(
        self,
        rows: np.ndarray,
        pooled: np.ndarray,
        regions: np.ndarray,
        region_count: np.ndarray | None = None,
        boxes: np.ndarray | None = None,
    ) -> None:
        """Store `rows` (B,), ascending: pooled (B, P), regions (B, R, D), of which the first `region_count` (B,) exist.

        `boxes` (B, R, 4) are x1, y1, x2, y2 as shares of the image's width and height; they are not checked. Raises
        UserError for a vector or region with a value that is not finite in half precision (beyond ±65,504).
        """
        rows = np.asarray(rows)
        with np.errstate(over="ignore"):  # overflow is reported below
            half = np.asarray(pooled).astype(np.float16), np.asarray(regions).astype(np.float16)
        finite = np.isfinite(half[0]).all(1) & np.asarray(np.isfinite(half[1]).all((1, 2)))
        if not finite.all():
            row = rows[np.argmin(finite)]
            raise UserError(
                f"{self.folder / FILE}, row {row}: a feature is infinite or NaN in half precision; "
                "check the network's weights"
            )
        count = np.full(len(rows), regions.shape[1]) if region_count is None else region_count
        values: dict[str, np.ndarray] = {"pooled": half[0], "regions": half[1]}
        values["region_count"] = np.asarray(count, np.int32)
        if self._boxes:
            values["boxes"] = np.asarray(boxes, np.float32)
        for name, value in values.items():
            self._file[name][rows] = value
        self._crc[rows] = _compute_checksums(*values.values())
        self._crc_pooled[rows] = _compute_checksums(half[0])
        self._written[rows] = True

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._exit_stack:  # an error here leaves no new file
            if error is not None:
                raise error
            if not self._written.all():
                raise UserError(
                    f"{self.folder / FILE}: row {np.argmin(self._written)} was never written; write every row"
                )
            self._file["crc"][:] = self._crc
            self._file["crc_pooled"][:] = self._crc_pooled
            (self.folder / MANIFEST).unlink(missing_ok=True)
        shape = dict(zip("MPRD", self._shape, strict=True))
        manifest = {**self.manifest, "crc": _combine_checksums(self._crc), "shape": shape}
        write_atomically(self.folder / MANIFEST, serialise_with_checksum(manifest))


class FeatureStore:
    """Features of M images. The file stays open after the first read; forks and threads may share it.

    Raises UserError for missing or damaged files. Each row is compared with its checksum at its first read. Raises
    UserError then for a damaged row.
    """

    def __init__(self, folder: Path):
        import h5py

        self.path = Path(folder) / FILE
        try:
            with h5py.File(require_plain_file(self.path), "r") as file:
                self.has_boxes = "boxes" in file
                names = ("pooled", "regions", "boxes") if self.has_boxes else ("pooled", "regions")
                stored = {name: read_dataset(file, name) for name in names}
                if chunked := [name for name, values in stored.items() if values.chunks is not None]:
                    raise ValueError(f"{chunked[0]} is stored in chunks, expected contiguous")
                self._shape = (*stored["pooled"].shape, *stored["regions"].shape[1:])
                self.region_count = read_dataset(file, "region_count")[:]
                self._offsets = {name: values.id.get_offset() for name, values in stored.items()}
                self._crc = read_dataset(file, "crc")[:]
                # absent from old files
                self._crc_pooled = read_dataset(file, "crc_pooled")[:] if "crc_pooled" in file else None
            manifest = read_checksummed_json(Path(folder) / MANIFEST, "run the features stage again")
            self.manifest: Mapping[str, Any] = manifest
        except UserError:
            raise
        except FileNotFoundError as error:
            raise UserError(f"{error.filename or self.path}: there are no features; run the features stage") from None
        except (OSError, KeyError, ValueError, RuntimeError) as error:  # RuntimeError: HDF5's own checksums
            raise UserError(
                f"{self.path}: not a complete feature store ({error}); run the features stage again"
            ) from None
        if self.manifest.get("crc") != _combine_checksums(self._crc):
            raise UserError(f"{self.path}: the manifest belongs to another store; run the features stage again")
        self._vectors: FeatureStore | None = None
        self._file: io.FileIO | None = None
        self._verified, self._verified_pooled = np.zeros(len(self._crc), bool), np.zeros(len(self._crc), bool)

    def take_vectors(self, store: FeatureStore) -> None:
        """Replace this store's vectors by those of `store`, in all later reads.

        Raises UserError where the stores have different numbers of images, or only one of them has mirror images.
        """
        if self.mirrored != store.mirrored or len(self) != len(store):
            raise UserError(
                f"{store.path}: expected the images of {self.path}, with mirror images in both or in neither; set "
                "horizontal_flip to the same value in both sets of features"
            )
        self._vectors = store

    @property
    def mirrored(self) -> bool:
        """Return whether the store also has mirror images: row M + i is the mirror image of image i of M."""
        return bool(self.manifest.get("mirrored"))

    def __len__(self) -> int:
        """Return M, the number of images."""
        return self._shape[0] // (1 + self.mirrored)

    @property
    def pooled_size(self) -> int:
        """Return P, the size of an image's vector."""
        return self._shape[1] if self._vectors is None else self._vectors.pooled_size

    @property
    def regions_shape(self) -> tuple[int, int]:
        """Return (R, D): the number of regions and their size."""
        return self._shape[2], self._shape[3]

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pooled (B, P) float32, regions (B, R, D) float32 and mask (B, R) bool of images `rows` (B,).

        `rows` may have any order.
        """
        pooled, regions = self._read_stored("pooled", rows), self._read_stored("regions", rows)
        self._check(rows, pooled, regions)
        vectors = _to_float32(pooled) if self._vectors is None else self._vectors.pooled(rows)
        return vectors, _to_float32(regions), self.mask(rows)

    def read_into(self, rows: np.ndarray, pooled: np.ndarray, regions: np.ndarray) -> None:
        """Fill `pooled` (B, P) and `regions` (B, R, D), both float16, with images `rows` (B,), in any order."""
        stored_pooled = pooled if self._vectors is None else np.empty((len(rows), self._shape[1]), DTYPES["pooled"])
        self._fill("pooled", rows, stored_pooled)
        self._fill("regions", rows, regions)
        self._check(rows, stored_pooled, regions)
        if self._vectors is not None:
            pooled[:] = self._vectors.pooled(rows)  # exact: vectors are stored in half precision

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Return a mask (B, R) bool of the regions that the images `rows` (B,) have."""
        return np.arange(self._shape[2]) < self.region_count[rows][:, None]

    def pooled(self, rows: np.ndarray) -> np.ndarray:
        """Return pooled (B, P) float32 of images `rows` (B,), in any order, without reading regions.

        An old file without `crc_pooled` has no checksums of vectors alone, so the vectors are not checked here.
        """
        if self._vectors is not None:
            return self._vectors.pooled(rows)
        pooled = self._read_stored("pooled", rows)
        new = np.flatnonzero(~self._verified_pooled[rows])
        if len(new) and self._crc_pooled is not None:
            self._compare(rows[new], _compute_checksums(pooled[new]), self._crc_pooled, self._verified_pooled)
        return _to_float32(pooled)

    def boxes(self, rows: np.ndarray) -> np.ndarray:
        """Return boxes (B, R, 4) float32 of images `rows` (B,): x1, y1, x2, y2 as shares of width and height.

        `rows` may have any order. Raises UserError where the regions have no boxes.
        """
        if not self.has_boxes:
            raise UserError(f"{self.path}: its regions have no boxes; extract the features with a detector")
        if not self._verified[rows].all():
            self._check(rows, self._read_stored("pooled", rows), self._read_stored("regions", rows))
        return self._read_stored("boxes", rows)

    def _check(self, rows: np.ndarray, pooled: np.ndarray, regions: np.ndarray) -> None:
        """Compare the rows that are read for the first time with their checksums."""
        new = np.flatnonzero(~self._verified[rows])
        if len(new):
            new_rows = rows[new]
            values = [pooled[new], regions[new], self.region_count[new_rows]]
            values += [self._read_stored("boxes", new_rows)] if self.has_boxes else []
            self._compare(new_rows, _compute_checksums(*values), self._crc, self._verified)

    def _compare(self, rows: np.ndarray, computed: np.ndarray, stored: np.ndarray, verified: np.ndarray) -> None:
        if len(damaged := np.flatnonzero(computed != stored[rows])):
            raise UserError(
                f"{self.path}, row {rows[damaged[0]]}: the checksum differs, the file is damaged; run the "
                "features stage again"
            )
        verified[rows] = True

    def _read_stored(self, name: str, rows: np.ndarray) -> np.ndarray:
        _, pooled, regions, size = self._shape
        shape = {"pooled": (pooled,), "regions": (regions, size), "boxes": (regions, 4)}[name]
        values = np.empty((len(rows), *shape), DTYPES[name])
        self._fill(name, rows, values)
        return values

    def _fill(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        """Fill `values` with the rows `rows` of the HDF5 data set `name`. Each run of consecutive rows is one read.

        Raises IndexError for a row outside the store, and UserError where the file has become shorter.
        """
        if not len(rows):
            return
        if not 0 <= rows.min() <= rows.max() < self._shape[0]:
            raise IndexError(f"expected rows from 0 to {self._shape[0] - 1}, got rows {rows.min()} to {rows.max()}")
        file = self._file
        if file is None:  # two threads that open the file at once use two handles
            file = self._file = io.FileIO(self.path)
        descriptor, target = file.fileno(), values.data.cast("B")
        size, begins = values[:1].nbytes, np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        ends = np.append(begins, len(rows))[1:]
        offsets = (self._offsets[name] + rows[begins].astype(np.int64) * size).tolist()
        runs = list(zip(offsets, (begins * size).tolist(), (ends * size).tolist(), strict=True))
        if hasattr(os, "posix_fadvise"):  # Linux: announce all reads, so that the disk serves them together
            for offset, begin, end in runs:
                os.posix_fadvise(descriptor, offset, end - begin, os.POSIX_FADV_WILLNEED)
        for offset, begin, end in runs:
            while begin < end:
                count = os.preadv(descriptor, [target[begin:end]], offset)
                if not count:
                    raise UserError(f"{self.path}: the file is shorter than it was; run the features stage again")
                offset, begin = offset + count, begin + count

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


def _to_float32(half: np.ndarray) -> np.ndarray:
    """Return float16 as float32. PyTorch's cast is several times faster than NumPy's."""
    import torch

    return torch.from_numpy(half).float().numpy()


def _require_space(path: Path, size: int) -> None:
    """Raise OSError where the disk lacks room, before any extraction: HDF5 may end the process on a full disk."""
    if shutil.disk_usage(path.parent).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _compute_checksums(*values: np.ndarray) -> np.ndarray:
    """Return (B,) uint32: the CRC-32 of each row's bytes, as stored, in all `values` in their order."""
    checksums = np.empty(len(values[0]), np.uint32)
    for i, row in enumerate(zip(*values, strict=True)):
        crc = 0
        for value in row:
            crc = zlib.crc32(np.ascontiguousarray(value).data, crc)
        checksums[i] = crc
    return checksums


def _combine_checksums(checksums: np.ndarray) -> int:
    return zlib.crc32(checksums.astype("<u4").tobytes())
