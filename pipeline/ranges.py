"""Numbers with a range, for the options of methods and the keys of params.yaml: `rho: Share = 0.25`."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt

Share = Annotated[float, Ge(0), Le(1)]
Dropped = Annotated[float, Ge(0), Lt(1)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
