"""Groups of look-alike images: hard negatives for scores that compare the images of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LookAlikeGroups:
    """The nearest images of each image, and the size of groups."""

    nearest: np.ndarray  # (M, K) int64: rows of images, the most similar first; -1: none
    size: int

    def arrange(self, order: np.ndarray) -> np.ndarray:
        """Return the images of `order` (B,) in groups: an image, then its nearest images that are in no group yet.

        The groups begin in the order of `order`, and its images appear once each. Where an image's nearest
        images are in other groups, its group is smaller.
        """
        free = np.zeros(len(self.nearest), bool)
        free[order] = True
        arrangement: list[int] = []
        for image in order.tolist():
            if not free[image]:
                continue
            free[image] = False
            candidates = self.nearest[image]
            candidates = candidates[candidates >= 0]
            neighbours = candidates[free[candidates]][: self.size - 1]
            free[neighbours] = False
            arrangement += [image, *neighbours.tolist()]
        return np.array(arrangement, np.int64)
