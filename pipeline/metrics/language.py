"""The metrics of the registry, computed from generated captions and human references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice

import numpy as np

from pipeline.errors import UserError
from pipeline.metrics import java
from pipeline.metrics.registry import COUNT_METRICS, METRIC_NAMES, METRICS, MetricProcess


@dataclass(frozen=True)
class LanguageScores:
    """Scores of N captions."""

    scores: dict[str, float] = field(default_factory=dict)  # corpus scores
    per_caption: dict[str, np.ndarray] = field(default_factory=dict)  # (N,) float64, in the order of the captions
    bleu_counts: np.ndarray | None = None  # (N, 10), if BLEU was computed
    not_computed: dict[str, str] = field(default_factory=dict)  # metric → reason in one line


def compute_bleu_statistics(hypotheses: Sequence[str], all_references: Sequence[Sequence[str]]) -> np.ndarray:
    """Return counts (N, 10) int32 of tokenised texts; pycocoevalcap's corpus BLEU is a function of their sums.

    The first two counts are the tokens of the caption and of the reference closest in length. The other counts are
    the caption's n-grams, n = 1 … 4, and its matching n-grams, n = 1 … 4.
    """
    from pycocoevalcap.bleu.bleu_scorer import cook_refs, cook_test

    rows = []
    for text, references in zip(hypotheses, all_references, strict=True):
        counts = cook_test(text, cook_refs(references))
        closest = min((abs(length - counts["testlen"]), length) for length in counts["reflen"])[1]
        rows.append([counts["testlen"], closest, *counts["guess"], *counts["correct"]])
    return np.array(rows, dtype=np.int32).reshape(-1, 10)


class LanguageScorer:
    """Scorer of sets of captions, with a cache of tokenised texts; a context manager.

    METEOR takes many seconds to load its tables, so processes start on entry; captions may be generated meanwhile.
    `timeout`: the limit in seconds for a Java program on one set of captions; a program that exceeds it gives no score.
    `metrics`: names of scores. SPIDEr, a sum, is added where both of its parts are computed. Raises UserError for a
    name that is not in METRIC_NAMES.
    """

    def __init__(self, metrics: Sequence[str] = METRIC_NAMES, timeout: float = 900.0) -> None:
        self._metrics = _check_names(metrics)
        self._timeout = timeout
        self._tokenised: dict[str, str] = {}
        self._processes: dict[str, MetricProcess] = {}

    def __enter__(self) -> LanguageScorer:
        with suppress(java.NotComputedError):  # `score` reports the error
            self._start(self._metrics)
        return self

    def __exit__(self, *error: object) -> None:
        while self._processes:
            self._processes.popitem()[1].close()

    def score(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], metrics: Sequence[str] | None = None
    ) -> LanguageScores:
        """Score one caption per image against the image's references; `metrics` replaces the scorer's metrics.

        An empty caption is scored like any other. A metric that cannot run has no score, and `not_computed` holds the
        reason. Raises UserError if there are no captions, or if captions and images differ in number. Raises UserError,
        too, if an image has no reference with a word, and for unknown `metrics`.
        """
        if len(hypotheses) != len(references) or not len(hypotheses):
            raise UserError(
                f"language metrics: {len(hypotheses)} captions for references of {len(references)} images; "
                "give one caption and its references for every image"
            )
        metric_names = self._metrics if metrics is None else _check_names(metrics)
        try:
            self._start(metric_names)
            all_tokenised = iter(self.tokenise([*hypotheses, *chain.from_iterable(references)]))  # one start of Java
        except java.NotComputedError as reason:
            return LanguageScores(not_computed=dict.fromkeys(metric_names, str(reason)))
        tokenised = list(islice(all_tokenised, len(hypotheses)))
        human = [list(islice(all_tokenised, len(texts))) for texts in references]
        for image, texts in enumerate(human):
            if not any(texts):
                raise UserError(
                    f"references of image {image}: expected a reference with a word, found none among {len(texts)}; "
                    "correct the references"
                )
        result = LanguageScores(
            bleu_counts=compute_bleu_statistics(tokenised, human) if set(COUNT_METRICS) & set(metric_names) else None
        )
        with ThreadPoolExecutor(1) as executor:
            for names, compute in self._build_scorers(tokenised, human, metric_names, executor).items():
                try:
                    for name, (overall, per_caption) in zip(names, compute(), strict=True):
                        if name in metric_names:
                            result.scores[name] = float(overall)
                            result.per_caption[name] = np.asarray(per_caption, dtype=np.float64)
                except java.NotComputedError as reason:
                    result.not_computed.update(dict.fromkeys(names, str(reason)))
        for metric in METRICS:
            if metric.parts and result.scores.keys() >= set(metric.parts):
                result.scores[metric.name] = sum(result.scores[part] for part in metric.parts)
                result.per_caption[metric.name] = np.sum([result.per_caption[part] for part in metric.parts], axis=0)
        return result

    def _start(self, metric_names: Sequence[str]) -> None:
        """Start the missing processes of `metric_names`. Raises NotComputedError if a process cannot start."""
        for metric in METRICS:
            if metric.start and metric.name in metric_names and metric.name not in self._processes:
                self._processes[metric.name] = metric.start(self._timeout)

    def _build_scorers(
        self, hypotheses: list[str], references: list[list[str]], metric_names: Sequence[str], executor: Executor
    ) -> dict[tuple[str, ...], Callable[[], Iterable[java.Score]]]:
        """Return the functions that compute the metrics, by the names of their scores.

        Processes work while the other metrics are computed, so their results come last.
        """
        metrics = [metric for metric in METRICS if set(metric.names) & set(metric_names)]
        futures = {
            metric.names: executor.submit(self._processes[metric.name].score, hypotheses, references)
            for metric in metrics
            if metric.start
        }
        scorers: dict[tuple[str, ...], Callable[[], Iterable[java.Score]]] = {
            metric.names: partial(metric.compute, hypotheses, references, self._timeout)
            for metric in metrics
            if metric.compute
        }
        return scorers | {names: partial(_wait_for_result, future) for names, future in futures.items()}

    def tokenise(self, texts: Sequence[str]) -> list[str]:
        """Return Penn Treebank tokens of each text, with a cache. Raises NotComputedError if Java fails."""
        new = [text for text in dict.fromkeys(texts) if text not in self._tokenised]
        self._tokenised.update(zip(new, java.tokenise_ptb(new, self._timeout), strict=True))
        return [self._tokenised[text] for text in texts]


def _check_names(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return `metrics`. Raises UserError for a name that is not in METRIC_NAMES."""
    if unknown := [metric for metric in metrics if metric not in METRIC_NAMES]:
        raise UserError(f"metrics: {unknown[0]!r} is not known; choose from {', '.join(METRIC_NAMES)}")
    return tuple(metrics)


def _wait_for_result(future: Future[java.Score]) -> list[java.Score]:
    return [future.result()]
