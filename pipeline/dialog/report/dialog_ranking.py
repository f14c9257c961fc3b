"""Rankings of candidate answers, and differences between rankers with intervals over dialogs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pipeline.analysis.bootstrap import compute_interval, draw_resamples
from pipeline.analysis.caption_files import read_rows
from pipeline.analysis.judge_titles import Keys
from pipeline.analysis.results import Point, Results, Run
from pipeline.analysis.selection import Choice
from pipeline.evaluation.judge_names import ADAPTED, OWN

MRR = ("ranking", "MRR")  # mean reciprocal rank of candidate answers
METHOD_JUDGES = (OWN, ADAPTED)  # names of judges that each method has
SEED = re.compile(r"(.+)_(\d+)")  # d_mle_2 is d_mle with another seed


@dataclass(frozen=True)
class Ranker:
    """Generator, discriminator or prior that ranks candidates."""

    name: str
    point: Point  # metrics of the ranking, one run per seed
    columns: tuple[str, ...]  # by run: the column of the captions file with the human answers' ranks

    def compute_reciprocal_ranks(self) -> list[np.ndarray | None]:
        """Return the mean reciprocal rank of each test dialog, (D,), for each seed; None where it is unknown."""
        return [
            compute_reciprocal_ranks(run, column) for run, column in zip(self.point.runs, self.columns, strict=True)
        ]

    def compute_true_shares(self) -> list[np.ndarray | None]:
        """Return each seed's share of true answers per test dialog, (D,); None where it is unknown."""
        return [
            compute_dialog_means(run, "relevance_answer", lambda relevance: relevance == 1) for run in self.point.runs
        ]


@dataclass(frozen=True)
class RankerDifference:
    """Difference in MRR or in the share of true answers, averaged over seeds.

    `low` and `high` bound the central 95 % over resampled dialogs.
    """

    value: float
    low: float
    high: float
    by_seed: tuple[float, ...]

    @property
    def verdict(self) -> Literal["holds", "fails", "open"]:
        """Return "holds" or "fails" if the interval and all seeds, at least two, are on one side of 0; else "open"."""
        if len(self.by_seed) < 2:
            return "open"
        if self.low > 0 and min(self.by_seed) > 0:
            return "holds"
        return "fails" if self.high < 0 and max(self.by_seed) < 0 else "open"


def collect_generators(choices: Iterable[Choice]) -> dict[str, Ranker]:
    """Return the generator of each method at its selected setting, by the method's name."""
    points = [choice.point for choice in choices if choice.point]
    return {point.method: Ranker(point.method, point, ("rank",) * len(point.runs)) for point in points}


def collect_discriminators(results: Results, choices: Sequence[Choice]) -> dict[str, Ranker]:
    """Return the judges, other rankers and priors of the evaluations, then the adversarial discriminators.

    The ranker d_mle_2 is another seed of the ranker d_mle if d_mle was measured, else a ranker of its own. The names of
    adversarial discriminators contain their methods' names.
    """
    runs_by_name: dict[str, list[tuple[Run, str]]] = {}
    evaluations: dict[str, tuple[Run, Keys]] = {}
    for run in results.runs:
        for keys in run.numbers:
            if keys[1] in ("judges", "rankers") and keys[2] not in METHOD_JUDGES:
                evaluations.setdefault(keys[2], (run, (keys[1], keys[2])))
    for name, (run, ranker_keys) in evaluations.items():
        match = SEED.fullmatch(name)
        base = match[1] if match and match[1] in evaluations else name
        runs_by_name.setdefault(base, []).append((_select_ranking(run, ranker_keys, base), f"rank_{name}"))
    for choice in choices:
        if choice.point and choice.method.startswith("gan"):
            runs = [
                _select_ranking(run, ("judges", OWN), get_adversary_name(choice.method)) for run in choice.point.runs
            ]
            runs_by_name[get_adversary_name(choice.method)] = [(run, "rank_own") for run in runs]
    return {
        name: Ranker(name, Point(tuple(run for run, _ in seeds)), tuple(column for _, column in seeds))
        for name, seeds in runs_by_name.items()
    }


def get_adversary_name(method: str) -> str:
    """Return the name of the discriminator that is trained against the method's generator."""
    return f"{method}'s D"


def _select_ranking(run: Run, keys: Keys, name: str) -> Run:
    """Return `run` with only the numbers of the ranker at the keys `keys`, under the ranker's name."""
    numbers = {(k[0], *k[1 + len(keys) :]): v for k, v in run.numbers.items() if k[1 : 1 + len(keys)] == keys}
    return replace(run, method=name, evaluated_with=run.speaker, settings={}, numbers=numbers)


def compute_reciprocal_ranks(run: Run, column: str = "rank") -> np.ndarray | None:
    """Return the mean of 1 / rank over the rounds of each test dialog, (D,), as `compute_dialog_means` does."""
    return compute_dialog_means(run, column, np.reciprocal)


def compute_dialog_means(run: Run, column: str, transform: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
    """Return the mean of `transform(column)` over the rounds of each test dialog, (D,).

    Return None if the file lacks the column or the run's test dialogs, or if a value is missing or not finite.
    """
    filters = [("split", "==", "test")]
    if run.cell is not None:
        filters += [("method", "==", run.speaker), ("cell", "==", run.cell)]
    table = read_rows(run.captions, ["image", "round", column], filters)
    if not {"image", "round", column} <= set(table.column_names):
        return None
    images, rounds, values = (np.array(table[name].to_pylist(), float) for name in ("image", "round", column))
    if not len(values) or not np.isfinite(values).all():
        return None
    order = np.lexsort((rounds, images))
    return transform(values[order]).reshape(-1, int(rounds.max())).mean(1)


def compute_ranker_difference(
    minuend: Sequence[np.ndarray | None], subtrahend: Sequence[np.ndarray | None]
) -> RankerDifference | None:
    """Return the mean of `minuend` − `subtrahend`, each with one array (D,) over dialogs per seed.

    A single seed is paired with every seed of the other ranker. Return None if a seed lacks its values, so that no
    seed is dropped silently, or if the numbers of dialogs or seeds differ.
    """
    first, second = [x for x in minuend if x is not None], [x for x in subtrahend if x is not None]
    missing = len(first) < len(minuend) or len(second) < len(subtrahend)
    if missing or not first or not second or len({len(x) for x in (*first, *second)}) != 1:
        return None
    seeds = max(len(first), len(second))
    first, second = (values * seeds if len(values) == 1 else values for values in (first, second))
    if len(first) != len(second):
        return None
    gain = np.mean(first, 0) - np.mean(second, 0)
    resamples = draw_resamples(len(gain))
    low, high = compute_interval(resamples @ gain / len(gain))
    by_seed = tuple(float((a - b).mean()) for a, b in zip(first, second, strict=True))
    return RankerDifference(float(gain.mean()), low, high, by_seed)


def get_known_difference(rankers: Mapping[str, Ranker], name: str, other: str) -> RankerDifference | None:
    """Return the MRR of ranker `name` minus the MRR of ranker `other`; None if one of them is unknown."""
    if not {name, other} <= rankers.keys():
        return None
    return compute_ranker_difference(
        rankers[name].compute_reciprocal_ranks(), rankers[other].compute_reciprocal_ranks()
    )
