"""Loading of the prepared data set and its sets of features from the data folder."""

from __future__ import annotations

from pathlib import Path

from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import PreparedData
from pipeline.errors import UserError


def open_features(root: Path, features: str, prepared: PreparedData) -> FeatureStore:
    """Return the set of features `features`.

    Raises UserError where the files are missing or damaged, or hold another number of images than `prepared`.
    """
    store = FeatureStore(root / "features" / features)
    if len(prepared) != len(store):
        raise UserError(
            f"{store.path}: {len(prepared)} prepared images, but features of {len(store)}; run the features stage again"
        )
    return store


def load_data(root: Path, features: str = "main", vectors: str | None = None) -> tuple[PreparedData, FeatureStore]:
    """Return the prepared data set and one of its sets of features below `root`.

    `vectors` names another set, whose vectors replace the vectors of `features`; None: no replacement. Raises UserError
    as `open_features` does, where the data are missing or damaged, or where only one of the two sets has mirror images.
    """
    prepared = PreparedData.load(root / "prepared")
    store = open_features(root, features, prepared)
    if vectors is not None and vectors != features:
        store.take_vectors(open_features(root, vectors, prepared))
    return prepared, store
