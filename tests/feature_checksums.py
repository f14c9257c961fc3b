"""Whether a feature store holds what was written."""

from __future__ import annotations

import numpy as np

from pipeline.data.feature_store import FeatureStore, _checksums
from pipeline.errors import UserError


def verify(store: FeatureStore) -> None:
    """Compute every row's checksum again; UserError names the first row that is damaged."""
    for start in range(0, len(store._crc), 256):
        rows = np.arange(start, min(start + 256, len(store._crc)))
        pooled, regions, *boxes = (store._stored(name, rows) for name in store._offsets)
        bad = np.flatnonzero(_checksums(pooled, regions, store.region_count[rows], *boxes) != store._crc[rows])
        if len(bad):
            raise UserError(f"{store.path}, row {start + bad[0]}: the checksum differs, the file is damaged")
