"""Intermediate features: one file per batch, from which a killed extraction continues."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from pipeline.corpora.archives import UNREADABLE
from pipeline.errors import UserError
from pipeline.features.extractor import ImageFeatures
from pipeline.runtime.files import atomic_path

Arrays = dict[str, np.ndarray]
REQUIRED = {"pooled", "regions", "region_count"}  # arrays of every file


class FeatureParts:
    """Features of images by one network, in files of `batch` images; processes may write different files at once.

    `<row of the first image>.npz` holds pooled and regions in half precision, region_count, and boxes where there are
    any. A file is complete or absent; each read checks its checksums (CRC-32 of the zip format).
    """

    def __init__(self, folder: Path, batch: int):
        self.folder, self.batch = folder, batch
        self._read_cached = lru_cache(maxsize=1)(self._read_content)  # rows are read in ascending order

    def holds(self, first: int) -> bool:
        """Return whether the batch that begins with row `first` exists and is undamaged."""
        try:
            return bool(self._read_content(first))
        except UserError:
            return False

    def write(self, first: int, features: ImageFeatures) -> np.ndarray:
        """Write the batch that begins with row `first` if all its features are finite in half precision.

        Returns (B,) bool: True for rows with finite features. Regions and pooled become float16, region_count int32,
        boxes float32.
        """
        dtypes = {"pooled": np.float16, "regions": np.float16, "region_count": np.int32, "boxes": np.float32}
        tensors = {name: value for name, value in features._asdict().items() if value is not None}
        with np.errstate(over="ignore"):  # the caller reports the image
            arrays = {name: value.float().cpu().numpy().astype(dtypes[name]) for name, value in tensors.items()}
        finite = np.isfinite(arrays["pooled"]).all(1) & np.isfinite(arrays["regions"]).all((1, 2))
        if finite.all():
            with atomic_path(self._path(first)) as path, open(path, "wb") as file:
                np.savez(file, **arrays)
        return finite

    def read(self, rows: np.ndarray) -> Arrays:
        """Return the arrays of `rows` (B,), ascending; raises UserError for a file that is missing or damaged."""
        firsts = rows - rows % self.batch
        parts = [(self._read_cached(int(first)), rows[firsts == first] - first) for first in np.unique(firsts)]
        return {name: np.concatenate([part[name][indices] for part, indices in parts]) for name in parts[0][0]}

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:09d}.npz"

    def _read_content(self, first: int) -> Arrays:
        path = self._path(first)
        try:
            with np.load(path, allow_pickle=False) as content:
                arrays = dict(content)
            if missing := REQUIRED - arrays.keys():  # a damaged directory of the zip file may hide the last arrays
                raise ValueError(f"no {min(missing)}")
            return arrays
        except (OSError, *UNREADABLE) as error:
            raise UserError(f"{path}: missing or damaged ({error}); check the disk and run the stage again") from None
