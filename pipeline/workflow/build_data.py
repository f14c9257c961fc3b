"""The inputs of stages: the prepared data set, its features, and CIDEr-D against its human captions."""

from __future__ import annotations

from pathlib import Path

from pipeline.config.data_schema import MAIN
from pipeline.data.feature_store import FeatureStore
from pipeline.data.image_features import open_features
from pipeline.data.prepared import Prepared, column_array, read_columns
from pipeline.metrics.cider import CiderD


def load_data(root: Path, features: str = MAIN) -> tuple[Prepared, FeatureStore]:
    """Return the prepared data set and one of its sets of features below `root`."""
    prepared = Prepared.load(root / "prepared")
    return prepared, open_features(root, features, prepared)


def cider(prepared: Prepared, eos: bool = True, frequencies: str = "train") -> CiderD:
    """Return CIDEr-D against all human captions, with the document frequencies that the prepare stage counted."""
    counted = read_columns(prepared.folder / "document_frequencies.parquet", ["key", "count"])
    references = [prepared.captions(image) for image in range(len(prepared))]
    return CiderD.build(
        references,
        column_array(counted["key"]),
        column_array(counted["count"]),
        len(prepared.rows("train")),
        max_words=prepared.max_words,
        eos=eos,
        frequencies="batch" if frequencies == "batch" else "train",
    )
