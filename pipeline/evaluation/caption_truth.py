"""Interfaces that check captions against facts of the images; slices of drawn data implement them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from pipeline.data.prepared import PreparedData


class CaptionTruth(Protocol):
    """Truth of N captions by the facts of their images."""

    def summary(self) -> dict[str, Any]:
        """Return the shares over all captions, as metrics.json holds them."""
        ...

    def columns(self) -> dict[str, list[int]]:
        """Return the counts per caption, as captions.parquet holds them."""
        ...


TruthChecker = Callable[[Sequence[str], np.ndarray], CaptionTruth]
"""Function of N captions and their images (N,), rows of the prepared data."""
TruthCheckerBuilder = Callable[[PreparedData], TruthChecker | None]
"""Constructor of a truth checker; returns None where the data set has no facts of the images."""
