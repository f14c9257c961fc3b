"""What stages work on: the prepared data set, its features, and metrics against its human captions."""

from __future__ import annotations

from pathlib import Path

from pipeline.config.data_schema import MAIN
from pipeline.data.feature_store import FeatureStore
from pipeline.data.prepared import Prepared, numbers, read_columns
from pipeline.errors import UserError
from pipeline.metrics.cider import CiderD


def data(root: Path, features: str = MAIN) -> tuple[Prepared, FeatureStore]:
    """The prepared data set and one of its sets of features below `root`."""
    prepared = Prepared.load(root / "prepared")
    return prepared, store_of(root, features, prepared)


def store_of(root: Path, features: str, prepared: Prepared) -> FeatureStore:
    """The set of features of this name, of all prepared images."""
    store = FeatureStore(root / "features" / features)
    if len(prepared) != len(store):
        raise UserError(
            f"{store.path}: {len(prepared)} prepared images, but features of {len(store)}; run the features stage again"
        )
    return store


def cider(prepared: Prepared, eos: bool = True, frequencies: str = "train") -> CiderD:
    """CIDEr-D against all human captions; document frequencies as the prepare stage counted them."""
    counted = read_columns(prepared.folder / "document_frequencies.parquet", ["key", "count"])
    references = [prepared.captions(image) for image in range(len(prepared))]
    return CiderD.build(
        references,
        numbers(counted["key"]),
        numbers(counted["count"]),
        len(prepared.rows("train")),
        max_words=prepared.max_words,
        eos=eos,
        frequencies="batch" if frequencies == "batch" else "train",
    )
