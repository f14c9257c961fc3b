"""Detection of near-duplicates, and greedy formation of bags from embeddings, the tightest bag first."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline.metrics.retrieval import find_similar_distractors
from saywhich.judging.thumbnails import BLOCK, COLOURS, MAX_COLOUR_DIFFERENCE

CANDIDATES = 64  # nearest photos from which a photo's bag is chosen; `size` − 1 for larger bags
SLACK = 1e-3  # tolerance of squared distances, above their rounding in single precision


@dataclass(frozen=True)
class FormedBags:
    """N bags of `size` photos: indices of photos, and cosines of each bag's first photo with the others."""

    members: np.ndarray  # (N, size) int64: the first photo, then the others, the most similar first
    cosines: np.ndarray  # (N, size − 1) float64


def find_earlier_duplicates(thumbnails: Tensor) -> np.ndarray:
    """Return (M,) int64: for each of M photos the first earlier photo that it nearly duplicates, or −1.

    `thumbnails` (M, H) are vectors of `Thumbnails`. Photos are near-duplicates where no mean colour of the 8 × 8 cells
    differs by more than 3 % of the range. Earlier photos that are near-duplicates themselves are skipped.
    """
    colours = thumbnails[:, :COLOURS].float()
    duplicates = np.full(len(colours), -1)
    distinct = torch.empty(0, dtype=torch.int64)
    start = 0
    while start < len(colours):
        rows = torch.arange(start, min(start + max(1, min(512, BLOCK // (len(distinct) + 512))), len(colours)))
        for row, other in _find_near_duplicates(colours, rows, torch.cat([distinct, rows])):
            if other < row and duplicates[row] < 0 and duplicates[other] < 0:
                duplicates[row] = other
        distinct = torch.cat([distinct, rows[torch.from_numpy(duplicates[start : start + len(rows)]) < 0]])
        start += len(rows)
    return duplicates


def form_bags(vectors: Tensor, size: int, min_cosine: float) -> FormedBags:
    """Group photos with embeddings `vectors` (M, H) into bags; each photo is in at most one.

    The bag of a photo is the photo and its `size` − 1 nearest photos that are in no bag yet. Only its
    max(64, `size` − 1) nearest photos are considered. Nearness is the cosine of mean-centred embeddings. The bag whose
    last photo is most similar to the first is formed first. No bag has a cosine below `min_cosine`. Equal cosines of
    considered photos keep the photos' order.
    """
    nearest, cosines = _find_nearest(vectors, min(max(CANDIDATES, size - 1), len(vectors) - 1))
    free = np.ones(len(vectors), bool)
    heap = [(-value, row) for row, value in enumerate(cosines[:, size - 2].tolist())]
    heapq.heapify(heap)
    members, values = [], []
    while heap:
        expected, row = heapq.heappop(heap)
        columns = np.flatnonzero(free[nearest[row]])[: size - 1]
        if not free[row] or len(columns) < size - 1:
            continue
        bag_cosines = cosines[row, columns]
        if bag_cosines[-1] < min_cosine:
            continue
        if -bag_cosines[-1] > expected:  # a photo of the expected bag is in another bag by now
            heapq.heappush(heap, (-float(bag_cosines[-1]), row))
            continue
        members.append([row, *nearest[row, columns].tolist()])
        values.append(bag_cosines)
        free[members[-1]] = False
    return FormedBags(np.array(members, np.int64).reshape(-1, size), np.array(values, np.float64).reshape(-1, size - 1))


def _find_nearest(vectors: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `count` nearest other photos of each of M photos and their cosines, (M, count) each, nearest first."""
    nearest = find_similar_distractors(vectors, count)
    unit = torch.nn.functional.normalize(vectors.double() - vectors.double().mean(0), dim=1)
    cosines = torch.empty(nearest.shape, dtype=torch.float64)
    rows = max(1, BLOCK // (count * vectors.shape[1]))
    for part in torch.arange(len(vectors)).split(rows):
        cosines[part] = torch.einsum("nkh,nh->nk", unit[nearest[part]], unit[part])
    order = np.lexsort((nearest.numpy(), -cosines.numpy()))
    return np.take_along_axis(nearest.numpy(), order, 1), np.take_along_axis(cosines.numpy(), order, 1)


def _find_near_duplicates(colours: Tensor, rows: Tensor, candidates: Tensor) -> list[tuple[int, int]]:
    """Return the near-duplicate pairs (row, other), in order; a row that is a candidate is paired with itself, too.

    Near-duplicates have a Euclidean distance of at most √COLOURS · MAX_COLOUR_DIFFERENCE. Only pairs within this
    distance, plus a tolerance, are compared cell by cell.
    """
    squares = torch.cdist(colours[rows], colours[candidates]).square()
    i, j = (squares <= COLOURS * MAX_COLOUR_DIFFERENCE**2 + SLACK).nonzero(as_tuple=True)
    pairs = []
    for start in range(0, len(i), BLOCK // COLOURS):
        part = slice(start, start + BLOCK // COLOURS)
        a, b = rows[i[part]], candidates[j[part]]
        same = (colours[a] - colours[b]).abs().amax(1) <= MAX_COLOUR_DIFFERENCE
        pairs += list(zip(a[same].tolist(), b[same].tolist(), strict=True))
    return sorted(pairs)
