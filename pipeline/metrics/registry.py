"""All metrics of captions against human references, with their names, computation, resampling, display and rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pipeline.metrics.coco_caption import (
    compute_bleu,
    compute_cider,
    compute_rouge_l,
    compute_spice,
    require_spice,
)
from pipeline.metrics.java import Score
from pipeline.metrics.shared_meteor import connect_meteor


class MetricProcess(Protocol):
    """Interface of a running program that computes a metric."""

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Return the corpus score and each caption's, of N tokenised captions against their references.

        Raises NotComputedError if the program fails.
        """

    def close(self) -> None:
        """End the program."""


@dataclass(frozen=True)
class Metric:
    """Metric of captions, computed by one of `compute`, `start` and `parts`.

    `compute(captions, references, timeout)` receives N captions and the references of each, as tokens joined by spaces.
    It returns one (corpus score, scores of N captions) for each of `names`. It imports its packages when it is called,
    and raises NotComputedError, with a one-line reason, where it cannot run.
    """

    name: str  # in evaluate.metrics; a metric with `parts` is computed from them and is not listed there
    compute: Callable[[Sequence[str], Sequence[Sequence[str]], float], Iterable[Score]] | None = None
    # starts a process, with a timeout in seconds, that scores while other metrics are computed
    start: Callable[[float], MetricProcess] | None = None
    parts: tuple[str, ...] = ()  # scores whose sum is the metric, if all are computed
    check: Callable[[], None] | None = None  # raises NotComputedError where a program's files are missing
    scores: tuple[str, ...] = ()  # names in metrics.json; empty: the metric's own. Reports show the last name
    range: tuple[float, float] = (0.0, 1.0)
    higher_is_better: bool = True
    digits: int = 3  # decimals in tables
    # bootstrap over images: mean of a column of captions.parquet, or BLEU from summed n-gram counts; None: no bootstrap
    resampled: Literal["mean", "counts"] | None = "mean"
    reward: Literal["ids", "text"] | None = None  # input of the metric as a reward; None: it is no reward
    best_of_beam: bool = False  # a column of the table of the best captions of a wide beam

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the metric's scores in metrics.json."""
        return self.scores or (self.name,)


METRICS = (
    Metric("BLEU", compute_bleu, scores=("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"), resampled="counts", reward="ids"),
    Metric("METEOR", start=connect_meteor, reward="text", best_of_beam=True),
    Metric("ROUGE-L", compute_rouge_l, reward="ids"),
    Metric("CIDEr", compute_cider, range=(0.0, 10.0), reward="ids", best_of_beam=True),
    Metric("SPICE", compute_spice, check=require_spice, reward="text", best_of_beam=True),
    Metric("SPIDEr", parts=("CIDEr", "SPICE"), range=(0.0, 11.0)),  # Liu et al. 2017
)
FIRST_TABLE_METRIC = "CIDEr"  # the first metric in tables
TABLE_ORDER = tuple(sorted(METRICS, key=lambda metric: metric.name != FIRST_TABLE_METRIC))

BY_NAME = {metric.name: metric for metric in METRICS}
TABLE_METRICS = {metric.names[-1]: metric for metric in TABLE_ORDER}
MEAN_METRICS = tuple(name for metric in TABLE_ORDER if metric.resampled == "mean" for name in metric.names)
COUNT_METRICS = tuple(name for metric in METRICS if metric.resampled == "counts" for name in metric.names)
METRIC_NAMES = tuple(name for metric in METRICS if not metric.parts for name in metric.names)
REWARDS = tuple(name for metric in TABLE_ORDER if metric.reward for name in metric.names)

if TYPE_CHECKING:
    MetricName = str
    TableMetric = str
    RewardMetric = str
else:
    MetricName = Literal[tuple(metric.name for metric in METRICS if not metric.parts)]
    TableMetric = Literal[tuple(TABLE_METRICS)]
    RewardMetric = Literal[REWARDS]
