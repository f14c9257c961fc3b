"""Sizes of the caption sets that are compared for each image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

SetSize = Annotated[int, Ge(2), Le(1_000)]


@dataclass(frozen=True)
class SetSizes:
    """Captions per image: `samples` drawn at random, and the best `beams` of a beam of width `beams`."""

    samples: SetSize
    beams: SetSize
