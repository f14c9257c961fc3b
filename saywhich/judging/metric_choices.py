"""Choices of metrics against references. This module must not import PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.errors import UserError
from pipeline.metrics.registry import METRICS

METRIC_CHOICES = tuple(metric.name for metric in METRICS if not metric.parts)


def check_metrics(names: Sequence[str] | None) -> None:
    """Raise UserError for an unknown name of a metric; None stands for all metrics."""
    if unknown := [name for name in names or () if name not in METRIC_CHOICES]:
        raise UserError(f"--metrics {unknown[0]}: no such metric; the metrics are {', '.join(METRIC_CHOICES)}")
