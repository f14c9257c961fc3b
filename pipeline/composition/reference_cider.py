"""CIDEr-D against the human captions of the prepared data set."""

from __future__ import annotations

from typing import Literal

from pipeline.data.prepared import PreparedData, read_columns, view_column
from pipeline.metrics.cider import CiderD


def build_reference_cider(
    prepared: PreparedData, eos: bool = True, frequencies: Literal["train", "batch"] = "train"
) -> CiderD:
    """Build CIDEr-D against all human captions.

    The document frequencies are those that the prepare stage counted or read from `prepare.document_frequencies`. With
    `frequencies` "batch", each batch's references are counted instead.
    """
    columns = read_columns(prepared.folder / "document_frequencies.parquet", ["key", "count"])
    return CiderD.build(
        [prepared.captions(image) for image in range(len(prepared))],
        view_column(columns["key"]),
        view_column(columns["count"]),
        len(prepared.rows("train")),
        max_words=prepared.max_words,
        eos=eos,
        frequencies=frequencies,
    )
