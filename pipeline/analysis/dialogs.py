"""What one system of visual dialog ranks better than another: paired differences, with intervals over dialogs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.analysis.bootstrap import draw, interval
from pipeline.analysis.captions import read_rows
from pipeline.analysis.results import Point, Run


@dataclass(frozen=True)
class Difference:
    """In MRR, averaged over seeds; `low` and `high` are the middle 95 % over dialogs drawn with replacement."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether it is other than 0 by more than its interval."""
        return self.low > 0 or self.high < 0


def reciprocal_ranks(run: Run, column: str = "rank") -> np.ndarray | None:
    """(D,): of each test dialog the mean of 1 / rank over its rounds; None where the file lacks the column."""
    wanted = [("split", "==", "test")]
    if run.cell is not None:
        wanted += [("method", "==", run.method), ("cell", "==", run.cell)]
    table = read_rows(run.captions, ["image", "round", column], wanted)
    if not {"image", "round", column} <= set(table.column_names):
        return None
    images, rounds, found = (np.array(table[name].to_pylist(), float) for name in ("image", "round", column))
    if not np.isfinite(found).all():
        return None
    order = np.lexsort((rounds, images))
    return (1 / found[order]).reshape(-1, int(rounds.max())).mean(1)


def difference(mine: Sequence[np.ndarray | None], theirs: Sequence[np.ndarray | None]) -> Difference | None:
    """Of dialogs (D,) of several seeds each; None where some are missing or other dialogs."""
    first, second = [x for x in mine if x is not None], [x for x in theirs if x is not None]
    if not first or not second or len({len(x) for x in (*first, *second)}) != 1:
        return None
    gain = np.mean(first, 0) - np.mean(second, 0)
    drawn = draw(len(gain))
    low, high = interval(drawn @ gain / len(gain))
    return Difference(float(gain.mean()), low, high)


def between(mine: Point, theirs: Point) -> Difference | None:
    """What the answers of one point rank better than those of another."""
    return difference(*([reciprocal_ranks(run) for run in point.runs] for point in (mine, theirs)))


def between_judges(point: Point, mine: str, theirs: str) -> Difference | None:
    """What one discriminator that judged a point ranks better than another."""
    return difference(*([reciprocal_ranks(point.runs[0], f"rank_{judge}")] for judge in (mine, theirs)))
