"""Types with ranges of numbers and lists, for method options and keys of params.yaml: `rho: Share = 0.75`.

Every number outside `Channels` has an upper bound; larger values exceed the memory or have no meaning.
"""

from __future__ import annotations

from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import AfterValidator, Field

Share = Annotated[float, Ge(0), Le(1)]
DropoutRate = Annotated[float, Ge(0), Lt(1)]
Positive = Annotated[float, Gt(0), Le(1_000_000)]
Temperature = Annotated[float, Ge(1e-6), Le(1_000_000)]  # logits divided by smaller values become infinite
NonNegative = Annotated[float, Ge(0), Le(1_000_000)]
Weight = Annotated[float, Ge(-1_000_000), Le(1_000_000)]
Count = Annotated[int, Ge(1), Le(10_000_000)]  # a number of images, samples, hidden units, epochs or steps
Natural = Annotated[int, Ge(0), Le(10_000_000)]
Size = Annotated[int, Ge(1), Le(16_384)]  # the size of a layer or vector, or the side of an image
SmallCount = Annotated[int, Ge(1), Le(1_000)]  # tokens of a caption, beams, layers, samples per image
Seed = Annotated[int, Ge(0), Le(2**63 - 1)]
Pixels = Annotated[int, Ge(1), Le(2048)]  # the side of a network's input image
Channels = Annotated[list[float], Field(min_length=3, max_length=3)]  # red, green and blue


def require_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `values`. Raises ValueError if a value occurs twice."""
    if repeated := [value for i, value in enumerate(values) if value in values[:i]]:
        raise ValueError(f"{repeated[0]} is given twice; remove one")
    return values


# non-empty lists of distinct values in YAML
Distinct = [Field(strict=False, min_length=1), AfterValidator(require_distinct)]
