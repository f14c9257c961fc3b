"""Comparison of all rows of a feature store with their checksums."""

import numpy as np

from pipeline.data.feature_store import FeatureStore


def verify(store: FeatureStore) -> None:
    """Compare every row with its checksums by reading the row; UserError names the first damaged row."""
    for start in range(0, len(store._crc), 256):
        rows = np.arange(start, min(start + 256, len(store._crc)))
        store.read(rows)
        store.pooled(rows)
