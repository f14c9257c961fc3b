"""Scheduled sampling (Bengio et al. 2015): the share of teacher-forced inputs replaced by the speaker's samples."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.channels.streams import NamedStream
from pipeline.ranges import Count, Natural, Share


@dataclass(frozen=True)
class ScheduledSampling(NamedStream):
    """The share of input tokens sampled from the speaker; it grows by `increment` after each `every` epochs, up to
    `max_share`."""

    start: Natural = 0
    every: Count = 5
    increment: Share = 0.05
    max_share: Share = 0.25
    rng_options = ("start", "every", ("by", "increment"), ("most", "max_share"))

    def share(self, epoch: int) -> float:
        """Return the share in `epoch`; 0 up to and including epoch `start` (self-critical.pytorch)."""
        grown = self.increment * ((epoch - self.start) // self.every)
        return 0.0 if epoch <= self.start else min(self.max_share, grown)
