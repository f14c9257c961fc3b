"""Metrics of text as rewards: METEOR and SPICE, which run as Java programs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pipeline.errors import UserError
from pipeline.metrics.java import NotComputedError

if TYPE_CHECKING:
    from pipeline.metrics.registry import Metric, MetricProcess

CACHED_CAPTIONS = 2**16  # the cache is emptied when it holds more scores
TIMEOUT = 900.0  # limit in seconds for one set of captions


class TextScorer:
    """Scorer of captions as tokenised text against their images' references, with a cache of distinct captions.

    METEOR's process, or connection to the grid's server, starts when it is first needed and ends with this object.
    SPICE starts a slow program at each call with new captions. A set of captions may take TIMEOUT seconds.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], references: Callable[[int], Sequence[str]]) -> None:
        """Store `decode`, from token ids to text, and `references`, from an image row to its human captions."""
        self._decode, self._references = decode, references
        self._scores: dict[tuple[str, int, str], float] = {}
        self._processes: dict[str, MetricProcess] = {}

    def score(self, metric: Metric, tokens: Tensor, images: Tensor) -> Tensor:
        """Return scores (N,) float64, 0 … 1, of captions `tokens` (N, T) of `images` (N,), rows of the prepared data.

        Raises UserError if the program cannot run, fails or exceeds the timeout.
        """
        requests = [
            (metric.name, image, self._decode(row)) for image, row in zip(images.tolist(), tokens.tolist(), strict=True)
        ]
        if len(self._scores) > CACHED_CAPTIONS:
            self._scores.clear()
        new = [key for key in dict.fromkeys(requests) if key not in self._scores]
        if new:
            texts, references = [text for *_, text in new], [self._references(image) for _, image, _ in new]
            try:
                self._scores.update(zip(new, self._compute(metric, texts, references), strict=True))
            except NotComputedError as reason:
                raise UserError(f"reward {metric.name}: {reason}") from None
        return torch.tensor([self._scores[key] for key in requests], dtype=torch.float64, device=tokens.device)

    def _compute(
        self, metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Sequence[float]:
        if metric.compute:
            ((_, per_caption),) = metric.compute(hypotheses, references, TIMEOUT)
            return per_caption
        assert metric.start
        if metric.name not in self._processes:
            self._processes[metric.name] = metric.start(TIMEOUT)
            weakref.finalize(self, self._processes[metric.name].close)
        return self._processes[metric.name].score(hypotheses, references)[1]


def check_text_metric(metric: Metric) -> None:
    """Call the `check` of `metric`, if it has one. Raises UserError if files of the metric's program are missing."""
    try:
        if metric.check:
            metric.check()
    except NotComputedError as reason:
        raise UserError(f"reward {metric.name}: {reason}") from None
