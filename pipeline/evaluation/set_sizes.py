"""How many captions of an image are compared with each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

Some = Annotated[int, Ge(2), Le(1_000)]


@dataclass(frozen=True)
class SetSizes:
    """How many captions per image: `samples` drawn at random, and the best `beams` of a beam of that width."""

    samples: Some
    beams: Some
