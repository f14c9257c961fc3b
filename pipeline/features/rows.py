"""Features on their way: a folder of rows with a checksum each, from which a killed extraction goes on."""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pipeline.errors import UserError
from pipeline.features.extractor import Seen

FLUSH = 16  # batches between two flushes to the disk
CHUNK = 64  # rows that are read at once


class Rows:
    """What M images look like to one network, image by image, in files of the ranges that processes work on.

    The file `<first>-<last + 1>.rows` holds records of one size, at first sparse: pooled and regions in half
    precision, region_count, boxes where there are any, and the CRC-32 of the row's number and all that. So processes
    on several machines write files of their own, in any division, and a row is there if one file holds it whole.
    """

    def __init__(self, folder: Path, images: int, pooled_size: int, regions_shape: tuple[int, int], boxes: bool):
        self.folder, self.images = Path(folder), images
        fields: list[tuple[Any, ...]] = [("pooled", "<f2", (pooled_size,)), ("regions", "<f2", regions_shape)]
        fields += [("region_count", "<i4"), *([("boxes", "<f4", (regions_shape[0], 4))] if boxes else [])]
        self.record = np.dtype([*fields, ("crc", "<u4")])
        self._holder: tuple[list[tuple[Path, int]], np.ndarray] | None = None

    def whole(self) -> np.ndarray:
        """(M,) bool: the rows whose checksum is right in some file; all files are read."""
        files, holder = [], np.full(self.images, -1, np.int32)
        for path in sorted(self.folder.glob("*.rows")):
            if not (match := re.fullmatch(r"(\d+)-(\d+)", path.stem)):
                continue
            row = int(match[1])
            files.append((path, row))
            with open(path, "rb") as file:
                while read := file.read(CHUNK * self.record.itemsize):
                    records = np.frombuffer(read, self.record, len(read) // self.record.itemsize)
                    rows = np.arange(row, row + len(records))
                    holder[rows[_checksums(records, rows) == records["crc"]]] = len(files) - 1
                    row += len(records)
        self._holder = files, holder
        return holder >= 0

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The records of `rows` (B,), ascending, which `whole` has found whole; UserError if one is no longer."""
        assert self._holder is not None
        (files, holder), records = self._holder, np.empty(len(rows), self.record)
        for number in np.unique(holder[rows]):
            path, start = files[number]
            here = holder[rows] == number
            stored = np.memmap(path, self.record, "r", shape=path.stat().st_size // self.record.itemsize)
            records[here] = stored[rows[here] - start]
        if (bad := rows[_checksums(records, rows) != records["crc"]]).size:
            raise UserError(
                f"{self.folder}: row {bad[0]} was whole and is not any more; look at the disk, run it again"
            )
        return records

    @contextmanager
    def writing(self, start: int, stop: int) -> Iterator[_Part]:
        """Opens the file of the rows start … stop − 1, whole rows kept; all is on the disk when the block ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{start:09d}-{stop:09d}.rows"
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            file.truncate((stop - start) * self.record.itemsize)
            yield _Part(file, self.record, start)
            file.flush()
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Remove the folder and all in it."""
        shutil.rmtree(self.folder)


class _Part:
    """An open file of rows."""

    def __init__(self, file: BinaryIO, record: np.dtype, start: int):
        self._file, self._record, self._start, self._unflushed = file, record, start, 0

    def write(self, rows: np.ndarray, seen: Seen) -> np.ndarray:
        """Write rows (B,) that follow each other; (B,) bool: which are finite in half precision, only then whole."""
        records = np.empty(len(rows), self._record)
        with np.errstate(over="ignore"):  # told by what is returned
            for name in (self._record.names or ())[:-1]:
                records[name] = getattr(seen, name).float().cpu().numpy()
        finite = np.isfinite(records["pooled"]).all(1) & np.isfinite(records["regions"]).all((1, 2))
        records["crc"] = _checksums(records, rows)
        records["crc"][~finite] ^= 1
        self._file.seek((int(rows[0]) - self._start) * self._record.itemsize)
        self._file.write(records.tobytes())
        self._file.flush()
        self._unflushed += 1
        if self._unflushed == FLUSH:
            os.fsync(self._file.fileno())
            self._unflushed = 0
        return finite


def _checksums(records: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(B,) uint32: the CRC-32 of a row's number and of its record without the last field."""
    content = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), records.itemsize)[:, :-4]
    numbers = rows.astype("<u8")
    return np.array([zlib.crc32(c, zlib.crc32(n)) for c, n in zip(content, numbers, strict=True)], np.uint32)
