"""Scheduled sampling (Bengio et al. 2015): some teacher-forced inputs are replaced by samples of the speaker."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.channels.streams import NamedStream
from pipeline.ranges import Count, Natural, Share


@dataclass(frozen=True)
class ScheduledSampling(NamedStream):
    """Schedule of the share of input tokens that are sampled from the speaker.

    From epoch `start` on, the share grows by `increment` after each `every` epochs, up to `max_share`.
    """

    start: Natural = 0
    every: Count = 5
    increment: Share = 0.05
    max_share: Share = 0.25
    rng_options = ("start", "every", ("by", "increment"), ("most", "max_share"))

    def share(self, epoch: int) -> float:
        """Return the share in `epoch` (from 0); before epoch `start` + `every`, it is 0 (self-critical.pytorch)."""
        grown = self.increment * ((epoch - self.start) // self.every)
        return 0.0 if epoch <= self.start else min(self.max_share, grown)
