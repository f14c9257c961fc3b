"""All kinds of judges."""

from __future__ import annotations

from pipeline.evaluation.judges import JUDGES as CORE
from pipeline.worlds.symbolic_judge import SYMBOLIC

JUDGES = (*CORE, SYMBOLIC)
