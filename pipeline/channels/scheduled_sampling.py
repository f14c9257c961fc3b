"""Scheduled sampling (Bengio et al. 2015): how much of itself a speaker hears while it is forced."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.channels.named import Named
from pipeline.ranges import Count, Natural, Share


@dataclass(frozen=True)
class ScheduledSampling(Named):
    """The share of words that the speaker hears of itself while being forced: `by` more after each `every` epochs."""

    start: Natural = 0
    every: Count = 5
    by: Share = 0.05
    most: Share = 0.25
    named = ("start", "every", "by", "most")

    def share(self, epoch: int) -> float:
        """The share in `epoch`; 0 up to and including epoch `start` (self-critical.pytorch)."""
        return 0.0 if epoch <= self.start else min(self.most, self.by * ((epoch - self.start) // self.every))
