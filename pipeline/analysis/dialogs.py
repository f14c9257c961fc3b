"""Who ranks the candidates of dialogs, and by how much better than another, with intervals over dialogs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pipeline.analysis.bootstrap import draw, interval
from pipeline.analysis.captions import read_rows
from pipeline.analysis.judges import Keys
from pipeline.analysis.results import Point, Results, Run
from pipeline.analysis.selection import Choice

OF_METHODS = ("own", "told_apart")  # judges that each method has for itself
SEED = re.compile(r"(.+)_(\d+)")  # d_mle_2: d_mle of another seed


@dataclass(frozen=True)
class Ranker:
    """A generator, a discriminator or a prior: a point whose numbers are those of its ranking, a run a seed."""

    name: str
    point: Point
    columns: tuple[str, ...]  # of each run's captions file: the ranks of human answers

    def reciprocals(self) -> list[np.ndarray | None]:
        """Of each seed, as `reciprocal_ranks`."""
        return [reciprocal_ranks(*each) for each in zip(self.point.runs, self.columns, strict=True)]


@dataclass(frozen=True)
class Difference:
    """In MRR, averaged over seeds; `low` and `high` are the middle 95 % over dialogs drawn with replacement."""

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]

    @property
    def verdict(self) -> Literal["holds", "fails", "open"]:
        """holds or fails: the interval is on one side of 0, and so is every seed's difference, of two at least."""
        if len(self.by_seed) > 1 and self.low > 0 and min(self.by_seed) > 0:
            return "holds"
        return "fails" if len(self.by_seed) > 1 and self.high < 0 and max(self.by_seed) < 0 else "open"


def generators(choices: Iterable[Choice]) -> dict[str, Ranker]:
    """The chosen setting of each method, by its name."""
    points = [choice.point for choice in choices if choice.point]
    return {point.method: Ranker(point.method, point, ("rank",) * len(point.runs)) for point in points}


def discriminators(results: Results, choices: Sequence[Choice]) -> dict[str, Ranker]:
    """All that judge or rank beside a method, priors among them; then those that learned against a generator.

    Those whose names differ in a number at the end are seeds of one. The last are named after their methods.
    """
    found: dict[str, list[tuple[Run, str]]] = {}
    held: dict[str, tuple[Run, Keys]] = {}
    for run in results.runs:
        for keys in run.numbers:
            if keys[1] in ("judges", "beside") and keys[2] not in OF_METHODS:
                held.setdefault(keys[2], (run, (keys[1], keys[2])))
    for name, (run, place) in held.items():
        numbered = SEED.fullmatch(name)
        base = numbered[1] if numbered and numbered[1] in held else name
        found.setdefault(base, []).append((_ranking(run, place, base), f"rank_{name}"))
    for choice in choices:
        if choice.point and choice.method.startswith("gan"):
            runs = [_ranking(run, ("judges", "own"), adversary(choice.method)) for run in choice.point.runs]
            found[adversary(choice.method)] = [(run, "rank_own") for run in runs]
    return {
        name: Ranker(name, Point(tuple(run for run, _ in seeds)), tuple(column for _, column in seeds))
        for name, seeds in found.items()
    }


def adversary(method: str) -> str:
    """The discriminator that learned against a method's generator."""
    return f"{method}'s D"


def _ranking(run: Run, place: Keys, name: str) -> Run:
    """`run` as if it were of the one who ranks at `place` of its numbers; its captions file stays."""
    numbers = {(k[0], *k[1 + len(place) :]): v for k, v in run.numbers.items() if k[1 : 1 + len(place)] == place}
    return replace(run, method=name, beside=run.speaker, settings={}, numbers=numbers)


def reciprocal_ranks(run: Run, column: str = "rank") -> np.ndarray | None:
    """(D,): of each test dialog the mean of 1 / rank over its rounds; None where the file lacks the column."""
    wanted = [("split", "==", "test")]
    if run.cell is not None:
        wanted += [("method", "==", run.speaker), ("cell", "==", run.cell)]
    table = read_rows(run.captions, ["image", "round", column], wanted)
    if not {"image", "round", column} <= set(table.column_names):
        return None
    images, rounds, found = (np.array(table[name].to_pylist(), float) for name in ("image", "round", column))
    if not np.isfinite(found).all():
        return None
    order = np.lexsort((rounds, images))
    return (1 / found[order]).reshape(-1, int(rounds.max())).mean(1)


def difference(mine: Sequence[np.ndarray | None], theirs: Sequence[np.ndarray | None]) -> Difference | None:
    """Of dialogs (D,) of several seeds each; one with one seed is the same for all of the other.

    None where some are missing, of other dialogs, or of other numbers of seeds.
    """
    first, second = [x for x in mine if x is not None], [x for x in theirs if x is not None]
    if not first or not second or len({len(x) for x in (*first, *second)}) != 1:
        return None
    seeds = max(len(first), len(second))
    first, second = (each * seeds if len(each) == 1 else each for each in (first, second))
    if len(first) != len(second):
        return None
    gain = np.mean(first, 0) - np.mean(second, 0)
    drawn = draw(len(gain))
    low, high = interval(drawn @ gain / len(gain))
    each = tuple(float((one - other).mean()) for one, other in zip(first, second, strict=True))
    return Difference(float(gain.mean()), low, high, each)


def between(known: Mapping[str, Ranker], mine: str, theirs: str) -> Difference | None:
    """What the one ranks better than the other; None where one is not there."""
    if not {mine, theirs} <= known.keys():
        return None
    return difference(known[mine].reciprocals(), known[theirs].reciprocals())
