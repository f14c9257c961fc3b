"""Who finds whom: ranks of the right answer in a gallery, and recall."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pipeline.errors import UserError


def ranks(
    queries: Tensor,
    gallery: Tensor,
    targets: Tensor,
    *,
    owners: Tensor | None = None,
    among: Tensor | None = None,
    block: int = 512,
) -> Tensor:
    """Rank (N,) int64 of each query's target in the gallery by inner product, 1 is best.

    `queries` (N, d), `gallery` (M, d), `targets` (N,) int64 rows of the gallery. With `owners` (M,), entries of the
    target's owner are not counted as others: two equal captions of one image do not stand in each other's way. With
    `among` (M, K) int64, the distractors of each target, none of them itself, only those are counted as others.

    The rank is 1 + the number of others that score as much or more: a listener that gives everything the same score
    ranks last, not first. Scores are summed in double precision and compared in single, so that vectors that are equal
    tie wherever they stand, and the size of a block (rows of queries at once) changes nothing.
    Raises UserError for vectors that hold NaN or infinity.
    """
    for name, vectors in (("queries", queries), ("gallery", gallery)):
        if not bool(torch.isfinite(vectors).all()):
            raise UserError(f"ranking: {name} hold NaN or infinity; the model that made them has diverged")
    transposed = gallery.double().T
    found = []
    for some, wanted in zip(queries.split(block), targets.split(block), strict=True):
        scores = (some.double() @ transposed).float()
        right = scores.gather(1, wanted[:, None])
        if among is not None:
            found.append(1 + (scores.gather(1, among[wanted]) >= right).sum(dim=1))
            continue
        not_worse = scores >= right
        if owners is None:
            found.append(not_worse.sum(dim=1))  # the target itself is one of them
        else:
            found.append(1 + (not_worse & (owners != owners[wanted, None])).sum(dim=1))
    return torch.cat(found)


def best(queries: Tensor, gallery: Tensor, count: int, *, block: int = 512) -> Tensor:
    """Rows (N, count) int64 of the gallery (M, d) that score highest for each of `queries` (N, d), best first."""
    count = min(count, len(gallery))
    transposed = gallery.double().T
    return torch.cat([(some.double() @ transposed).topk(count, dim=1).indices for some in queries.split(block)])


def random_distractors(images: int, count: int, seed: int) -> Tensor:
    """(M, count) int64 on the CPU: `count` different other images for each of `images`, drawn with a Philox generator.

    Raises UserError where there are not so many others.
    """
    if count >= images:
        raise UserError(f"gallery: {count} distractors an image, but there are only {images - 1} other images")
    draw = np.random.Generator(np.random.Philox(key=[seed, count]))
    # of M − 1 others; those from the image's own number on are moved up by one
    drawn = np.stack([draw.choice(images - 1, count, replace=False) for _ in range(images)])
    return torch.from_numpy(drawn + (drawn >= np.arange(images)[:, None]))


def similar_distractors(features: Tensor, count: int, *, block: int = 512) -> Tensor:
    """(M, count) int64: for each image the others nearest to it in feature space, most similar first.

    `features` (M, d); similarity is the cosine of what is left of them after their mean is taken away.
    Raises UserError where there are not so many others.
    """
    if count >= len(features):
        raise UserError(f"gallery: {count} distractors an image, but there are only {len(features) - 1} other images")
    unit = torch.nn.functional.normalize(features.double() - features.double().mean(0), dim=1)
    found = []
    for start in range(0, len(unit), block):
        cosines = unit[start : start + block] @ unit.T
        cosines.diagonal(start)[: len(cosines)].fill_(-torch.inf)
        found.append(cosines.topk(count, dim=1).indices)
    return torch.cat(found)


def best_of(ranks: Tensor, images: Tensor, count: int) -> Tensor:
    """Best rank (M,) of those of each image: `ranks` (N,), `images` (N,) int64 below `count` (M).

    Raises UserError for an image without one.
    """
    worst = torch.iinfo(ranks.dtype).max
    best = torch.full((count,), worst, dtype=ranks.dtype, device=ranks.device)
    best.scatter_reduce_(0, images, ranks, "amin")
    missing = (best == worst).nonzero()
    if len(missing):
        raise UserError(f"ranking: image {int(missing[0])} of {count} has no caption; every image needs one")
    return best


def recall(ranks: Tensor) -> dict[str, float]:
    """R@1, R@5, R@10 in percent, median and mean of `ranks` (N,), 1 is best. Raises UserError where there are none."""
    if not len(ranks):
        raise UserError("recall: there are no ranks; the split has no captions")
    values = ranks.double()
    shares = {f"R@{k}": 100 * float((ranks <= k).double().mean()) for k in (1, 5, 10)}
    return {**shares, "median_rank": float(values.quantile(0.5)), "mean_rank": float(values.mean())}
